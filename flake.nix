# For Nix: nix run . -- run --memory 4G -- ./program. Nix reads it; nothing was built with it.
{
  description = "Run programs on data far larger than memory";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = nixpkgs.lib.genAttrs systems;
      version = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package.version;
    in
    {
      packages = each (system:
        let pkgs = nixpkgs.legacyPackages.${system};
        in {
          default = pkgs.rustPlatform.buildRustPackage {
            pname = "terapage";
            inherit version;
            src = self;
            cargoLock.lockFile = ./Cargo.lock;
            cargoBuildFlags = [ "-p" "terapage-cli" "-p" "terapage-preload" "-p" "terapage-host" "-p" "terapage-capi" ];
            # The tests page memory, which a sandbox forbids.
            doCheck = false;
            # The command looks for its library in ../lib/terapage.
            postInstall = ''
              install -d $out/lib/terapage
              mv $out/lib/libterapage_preload.so $out/lib/terapage/
              if [ -e $out/bin/terapage-host ]; then mv $out/bin/terapage-host $out/lib/terapage/; fi
            '';
            meta = {
              homepage = "https://github.com/terapage/terapage";
              license = with pkgs.lib.licenses; [ mit asl20 ];
              platforms = systems;
              mainProgram = "terapage";
            };
          };
        });
    };
}
