# For Homebrew on Linux: brew install ./terapage.rb. Its syntax is checked; Homebrew has not run it.
class Terapage < Formula
  desc "Run programs on data far larger than memory"
  homepage "https://github.com/terapage/terapage"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_intel do
    url "https://github.com/terapage/terapage/releases/download/v@VERSION@/terapage-@VERSION@-x86_64.tar.xz"
    sha256 "@SHA256_x86_64@"
  end
  on_arm do
    url "https://github.com/terapage/terapage/releases/download/v@VERSION@/terapage-@VERSION@-aarch64.tar.xz"
    sha256 "@SHA256_aarch64@"
  end

  def install
    prefix.install "bin", "lib", "include", "share"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/terapage --version")
    system bin/"terapage", "run", "--memory", "64M", "--", "true"
  end
end
