# What the scripts of this folder share. They read it with `source`. TARGET names the target that
# was built, if cargo was given one.
# shellcheck shell=bash disable=SC2034
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
major=${version%%.*}
# The time of what is packed, so that the same input gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1577836800)}
export SOURCE_DATE_EPOCH
target=${TARGET:-$(uname -m)-unknown-linux-gnu}
processor=${target%%-*}
built=target/${TARGET:+$TARGET/}release
case $processor in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
*) echo "$target: packages are for x86_64 and aarch64" >&2; exit 1 ;;
esac
# For musl there are the command and the host, static, and no library.
musl=
[[ $target != *-musl ]] || musl=-musl
place=target/dist/$processor$musl
files=$place/files
# The static host is the host for musl, which `terapage adopt` needs beside the other.
static_host=target/x86_64-unknown-linux-musl/release/terapage-host
# With another processor's files, its tools: objcopy, objdump.
export tools=
[[ $processor == "$(uname -m)" ]] || tools=$processor-linux-gnu-
