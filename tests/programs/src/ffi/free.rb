# Objects of the C library, freed by functions that Fiddle looks up in the C library's handle.
#
# usage: free.rb MIB
require "fiddle"

libc = Fiddle.dlopen("libc.so.6")
strdup = Fiddle::Function.new(libc["strdup"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOIDP)
realloc = Fiddle::Function.new(libc["realloc"], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
free = Fiddle::Function.new(libc["free"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOID)
text = ->(index) { "#{index} " * 150 }
count = ARGV[0].to_i << 10
all = Array.new(count) { |index| strdup.call(text.call(index)).to_i }
(0...count).step(3) { |index| all[index] = realloc.call(all[index], 3000).to_i }
all.each_with_index do |at, index|
  exit 9 if Fiddle::Pointer.new(at).to_s != text.call(index)
  free.call(at)
end
puts "#{count} texts"
