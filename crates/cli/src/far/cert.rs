//! `terapage far cert`: makes a private CA, and certificates of that CA for servers and their
//! clients.

use crate::far::{CA, SERVER, SERVER_KEY};
use crate::print;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terapage_far::Server;
use time::{Duration, OffsetDateTime};

/// The name of the file with the CA's key.
const CA_KEY: &str = "ca.key";

/// The subject of a CA, which its certificates name as their issuer. The end of the CA's key
/// distinguishes it from other CAs.
fn ca_name(key: &KeyPair) -> String {
    let bytes = key.public_key_raw().iter().rev().take(4);
    let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
    format!("Terapage far memory {hex}")
}

/// The least time for which a CA is valid, in days.
const CA_DAYS: u32 = 3650;

/// The arguments of `terapage far cert`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage far cert --dir /etc/terapage/tls --server far1,far1.example.org,10.0.0.7
  terapage far cert --dir /etc/terapage/tls --client node7
  terapage far cert --dir ./tls --server localhost --days 30

Makes a CA in the directory if there is none yet. With the CA it makes a certificate for the server,
with all names and addresses by which clients reach the server, and one for clients. Existing files
are never overwritten: the command fails instead.")]
pub struct Cert {
    /// The directory of the files; it is created
    #[arg(short, long, value_name = "DIR")]
    dir: PathBuf,
    /// Make a certificate for a server, with these names and addresses of its host
    #[arg(short, long, value_name = "HOST", value_delimiter = ',')]
    server: Vec<String>,
    /// Make a certificate for clients, NAME.crt and NAME.key; with --server one is always made
    #[arg(short, long, value_name = "NAME")]
    client: Option<String>,
    /// The number of days for which the certificates are valid
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
}

/// A file to be.
struct File {
    name: String,
    text: String,
    is_secret: bool,
}

impl Cert {
    /// Makes them.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.server.is_empty() && self.client.is_none() {
            bail!("neither --server nor --client says which certificate to make");
        }
        for host in &self.server {
            let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.:*".contains(&b);
            if host.is_empty() || !host.bytes().all(fits) {
                bail!("--server: '{}' is neither the name nor the address of a host", host.escape_debug());
            }
        }
        let client = self.client.clone().unwrap_or_else(|| "client".to_owned());
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if client.is_empty() || client.starts_with('.') || !client.bytes().all(fits) {
            bail!("--client: a name has letters, digits and -_. (the files are named after it)");
        }
        if matches!(&*client, "ca" | "server") {
            bail!("--client: {client}.crt is another file's name");
        }
        let (issuer, mut files) = self.ca()?;
        if !self.server.is_empty() {
            let (certificate, key) = self.issue(&issuer, &self.server[0], &self.server, true)?;
            files.push(File { name: SERVER.to_owned(), text: certificate, is_secret: false });
            files.push(File { name: SERVER_KEY.to_owned(), text: key, is_secret: true });
        }
        let (certificate, key) = self.issue(&issuer, &client, &[], false)?;
        files.push(File { name: format!("{client}.crt"), text: certificate, is_secret: false });
        files.push(File { name: format!("{client}.key"), text: key, is_secret: true });
        write(&self.dir, &files)?;
        print(&self.told(&client)?)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The CA in the directory, or a new one and its files.
    fn ca(&self) -> anyhow::Result<(Issuer<'static, KeyPair>, Vec<File>)> {
        let (certificate, key) = (self.dir.join(CA), self.dir.join(CA_KEY));
        let is_there = certificate.exists() || key.exists();
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
        };
        let pair = if is_there {
            let text = read(&certificate)?;
            let pair = KeyPair::from_pem(&read(&key)?).ok();
            pair.filter(|pair| terapage_far::has_key(&text, pair.public_key_raw())).with_context(|| {
                format!("{} is not the key of {CA}, or {CA} was not made by this command", key.display())
            })?
        } else {
            KeyPair::generate()?
        };
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, ca_name(&pair));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        (params.not_before, params.not_after) = valid(CA_DAYS.max(self.days));
        let mut files = Vec::new();
        if !is_there {
            let text = params.self_signed(&pair)?.pem();
            files.push(File { name: CA.to_owned(), text, is_secret: false });
            files.push(File { name: CA_KEY.to_owned(), text: pair.serialize_pem(), is_secret: true });
        }
        Ok((Issuer::new(params, pair), files))
    }

    /// A certificate and its key.
    fn issue(
        &self,
        issuer: &Issuer<'static, KeyPair>,
        name: &str,
        hosts: &[String],
        is_server: bool,
    ) -> anyhow::Result<(String, String)> {
        let mut params = CertificateParams::new(hosts).context("--server")?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let usage =
            if is_server { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth };
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = valid(self.days);
        let pair = KeyPair::generate()?;
        Ok((params.signed_by(&pair, issuer)?.pem(), pair.serialize_pem()))
    }

    /// Says what to do with the files.
    fn told(&self, client: &str) -> anyhow::Result<String> {
        let dir = std::path::absolute(&self.dir)?;
        let shown = dir.display();
        let until = valid(self.days).1.date();
        let mut text = format!("made in {shown}, valid until {until}\n");
        let host = self.server.first().map_or("HOST", |host| host);
        if !self.server.is_empty() {
            text += &format!(
                "on the server, with {CA}, {SERVER} and {SERVER_KEY}:\n  \
                 terapage far serve --memory 64G --tls-dir {shown}\n"
            );
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut server =
            Server::parse(&format!("valkeys://{host}")).map_err(|why| anyhow!("--server: {why}"))?;
        server.files.ca = Some(dir.join(CA));
        server.files.cert = Some(dir.join(format!("{client}.crt")));
        server.files.key = Some(dir.join(format!("{client}.key")));
        text += &format!(
            "where programs run, with {CA}, {client}.crt and {client}.key:\n  terapage run \
             --memory 4G --store '{}' -- ./program\nkeep {CA_KEY} here: with it more certificates \
             can be made\n",
            server.without_password()
        );
        Ok(text)
    }
}

/// From yesterday on, as clocks differ.
fn valid(days: u32) -> (OffsetDateTime, OffsetDateTime) {
    let now = OffsetDateTime::now_utc();
    (now - Duration::days(1), now + Duration::days(days.into()))
}

/// Writes all of the files, or none.
fn write(dir: &Path, files: &[File]) -> anyhow::Result<()> {
    for file in files {
        let path = dir.join(&file.name);
        if path.symlink_metadata().is_ok() {
            bail!("{} is there already (remove it first, or name another --dir)", path.display());
        }
    }
    std::fs::create_dir_all(dir).with_context(|| format!("--dir: {} cannot be made", dir.display()))?;
    for (index, file) in files.iter().enumerate() {
        let path = dir.join(&file.name);
        let mode = if file.is_secret { 0o600 } else { 0o644 };
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .and_then(|mut out| out.write_all(file.text.as_bytes()).and_then(|()| out.sync_all()));
        if let Err(error) = written {
            files[..=index].iter().for_each(|file| drop(std::fs::remove_file(dir.join(&file.name))));
            return Err(error).with_context(|| format!("{} cannot be written", path.display()));
        }
    }
    Ok(())
}
