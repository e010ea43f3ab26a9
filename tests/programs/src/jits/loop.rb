# A loop that its compiler makes faster, and objects beyond the budget.
many = ARGV[0].to_i
t = 0
i = 0
while i < 5_000_000
  t = (t + i * 7) % 1000003
  i += 1
end
rows = (0...many).map { |n| [n, n * 0.5, "row #{n}"] }
sum = 0
2.times do
  rows.each_with_index do |row, n|
    raise unless row[0] == n && row[2] == "row #{n}"
    sum = (sum + (row[1] * 2).to_i) % 1000003
  end
end
raise "no compiled code" if defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? && RubyVM::YJIT.runtime_stats && RubyVM::YJIT.runtime_stats[:inline_code_size] == 0
puts "#{t} #{many} #{sum}"
