//! What a command becomes that only finds another program and executes it: `env`, shims of version
//! managers (pyenv and its like), `conda run`, shell scripts that end in `exec`.

use crate::program;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of a script that are read, at most.
const SCRIPT_MOST: usize = 64 << 10;

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// Version managers: `NAME exec PROGRAM` executes what `NAME which PROGRAM` names.
const MANAGERS: [&str; 9] = ["pyenv", "rbenv", "nodenv", "goenv", "jenv", "plenv", "phpenv", "asdf", "mise"];

/// The `conda run` of these executes a program of an environment.
const CONDAS: [&str; 3] = ["conda", "mamba", "micromamba"];

/// The command that this one becomes: `path` is its program, `files` are that and the interpreters
/// that it names. `None` if it is the program that does the work, or what it executes cannot be
/// known.
pub fn next(path: &Path, files: &[PathBuf], arguments: &[OsString]) -> Option<Vec<OsString>> {
    let last = files.last().map_or(path, PathBuf::as_path);
    if is_called(path, &MANAGERS) && arguments.first().is_some_and(|word| word == "exec") {
        return by_manager(path, arguments.get(1)?, &arguments[2..]);
    }
    if is_called(path, &CONDAS) && arguments.first().is_some_and(|word| word == "run") {
        return by_conda(path, &arguments[1..]);
    }
    // Shims of mise are links to it.
    let target = path.canonicalize().unwrap_or_default();
    if is_called(&target, &["mise"]) && !is_called(path, &["mise"]) {
        return by_manager(&target, path.file_name()?, arguments);
    }
    if is_called(last, &["env"]) {
        return Some(after_env(files, arguments)).filter(|command| !command.is_empty());
    }
    if !is_called(last, &SHELLS) {
        return None;
    }
    match files.iter().rev().nth(1) {
        Some(script) => by_script(script, arguments),
        // A shell with the script as an argument, as `env` starts it.
        None => {
            let (script, arguments) = arguments.split_first()?;
            by_script(Path::new(script), arguments)
        }
    }
}

/// Whether a file has one of these names.
pub fn is_called(path: &Path, names: &[&str]) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| names.contains(&name))
}

/// The first bytes of a file.
pub fn first_bytes(path: &Path, most: usize) -> Vec<u8> {
    let mut head = vec![0; most];
    let got = File::open(path).and_then(|file| file.read_at(&mut head, 0)).unwrap_or(0);
    head.truncate(got);
    head
}

/// What `env` starts: as its arguments say, or those in the first line of a script.
fn after_env(files: &[PathBuf], arguments: &[OsString]) -> Vec<OsString> {
    if files.len() < 2 {
        return skip_own(arguments.to_vec());
    }
    let script = &files[files.len() - 2];
    // What it starts gets the script and its arguments.
    let started = skip_own(words_of_line(files));
    match started.is_empty() {
        true => started,
        false => started.into_iter().chain([script.into()]).chain(arguments.iter().cloned()).collect(),
    }
}

/// The words after `env` in the first line of the script that it interprets.
fn words_of_line(files: &[PathBuf]) -> Vec<OsString> {
    let line = first_bytes(&files[files.len() - 2], 256);
    let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
    let words = line.split(|b| b" \t".contains(b)).filter(|word| !word.is_empty());
    // The path of `env` comes first.
    words.skip(1).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// A command without the options and the variables of `env` before it.
fn skip_own(words: Vec<OsString>) -> Vec<OsString> {
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.peek().map(|word| word.as_bytes().to_vec()) {
        if !word.starts_with(b"-") && !word.contains(&b'=') {
            break;
        }
        words.next();
        if [&b"-u"[..], b"--unset", b"-C", b"--chdir"].contains(&&*word) {
            words.next();
        }
    }
    words.collect()
}

/// The variable `LD_PRELOAD` of what `env` starts, which has `before` itself.
pub fn preload_after_env(files: &[PathBuf], arguments: &[OsString], before: OsString) -> OsString {
    let all = if files.len() < 2 { arguments.to_vec() } else { words_of_line(files) };
    let own = &all[..all.len() - skip_own(all.clone()).len()];
    let mut preload = before;
    for (at, word) in own.iter().map(|word| word.as_bytes()).enumerate() {
        let is_unset = |word: &[u8]| [&b"-u"[..], b"--unset"].contains(&word);
        if let Some(value) = word.strip_prefix(b"LD_PRELOAD=") {
            preload = OsStr::from_bytes(value).to_owned();
        } else if [&b"-"[..], b"-i", b"--ignore-environment"].contains(&word)
            || word == b"LD_PRELOAD" && at > 0 && is_unset(own[at - 1].as_bytes())
        {
            preload.clear();
        }
    }
    preload
}

/// What a version manager executes: it is asked, and does not execute the program for that.
fn by_manager(manager: &Path, name: &OsStr, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let mut command = Command::new(manager);
    command.arg("which").arg(name).stdin(Stdio::null()).stderr(Stdio::null());
    let answer = command.output().ok().filter(|answer| answer.status.success())?;
    let path = answer.stdout.split(|&b| b == b'\n').next().filter(|path| path.starts_with(b"/"))?;
    Some([OsString::from_vec(path.to_vec())].into_iter().chain(arguments.iter().cloned()).collect())
}

/// What `conda run` executes: a program of the environment that its options name, or of the one
/// that is active.
fn by_conda(conda: &Path, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let base = conda.canonicalize().ok()?.parent()?.parent()?.to_owned();
    let mut prefix = std::env::var_os("CONDA_PREFIX").map_or_else(|| base.clone(), PathBuf::from);
    let mut words = arguments.iter();
    let name = loop {
        let word = words.next()?;
        match word.to_str().unwrap_or("") {
            "-n" | "--name" => match words.next()? {
                name if name == "base" => prefix.clone_from(&base),
                name => prefix = base.join("envs").join(name),
            },
            "-p" | "--prefix" => prefix = words.next()?.into(),
            "--cwd" => drop(words.next()?),
            option if option.starts_with('-') => {}
            _ => break word,
        }
    };
    let own = prefix.join("bin").join(name);
    let found = if own.is_file() { own.into_os_string() } else { name.clone() };
    Some([found].into_iter().chain(words.cloned()).collect())
}

/// What a shell script executes at its end, if its last command is an `exec` whose words can be
/// known without running the script.
fn by_script(script: &Path, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let text = String::from_utf8(first_bytes(script, SCRIPT_MOST)).ok()?;
    let mut known = HashMap::from([("0".to_owned(), script.to_str()?.to_owned())]);
    let mut last = "";
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let assigned = line.strip_prefix("export ").unwrap_or(line);
        if let Some((name, value)) = assigned.split_once('=')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && let Some([value]) = words(value, &known, &[]).as_deref()
        {
            known.insert(name.to_owned(), value.to_str()?.to_owned());
        }
        last = line;
    }
    let command = words(last.strip_prefix("exec ")?, &known, arguments)?;
    // What the shell would not find, it does not execute.
    let path = program::find(command.first()?, std::env::var_os("PATH")).ok()?;
    (path != script).then_some(command)
}

/// The words of a line of a shell; `None` if one of them is more than text, variables that are
/// `known`, and `"$@"`.
fn words(line: &str, known: &HashMap<String, String>, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let mut all: Vec<OsString> = Vec::new();
    let mut letters = line.chars().peekable();
    let mut word: Option<String> = None;
    let mut quote = None;
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\'' | '"', None) => (quote, word) = (Some(letter), Some(word.unwrap_or_default())),
            (end, Some(open)) if end == open => quote = None,
            (' ' | '\t', None) => all.extend(word.take().map(OsString::from)),
            ('$', None | Some('"')) if letters.peek() == Some(&'@') => {
                letters.next();
                // Only as a word of its own.
                word = word.filter(|before| !before.is_empty());
                if word.is_some() {
                    return None;
                }
                all.extend(arguments.iter().cloned());
                if quote.take().is_some() && letters.next() != Some('"') {
                    return None;
                }
            }
            ('$', None | Some('"')) => {
                let value = variable(&mut letters, known)?;
                word.get_or_insert_default().push_str(&value);
            }
            ('`' | '\\', None | Some('"'))
            | ('|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '#', None) => {
                return None;
            }
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    all.extend(word.map(OsString::from));
    quote.is_none().then_some(all)
}

/// The value of a variable whose name comes next: `NAME`, `{NAME}`, or `{NAME##*/}`, which is the
/// last part of a path.
fn variable(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    known: &HashMap<String, String>,
) -> Option<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if letters.peek() != Some(&'{') {
        let mut name = String::new();
        while let Some(letter) = letters.next_if(|&c| is_of_name(c)) {
            name.push(letter);
        }
        return known.get(&name).cloned();
    }
    letters.next();
    let inner: String = letters.take_while(|&c| c != '}').collect();
    match inner.strip_suffix("##*/") {
        Some(name) => Some(known.get(name)?.rsplit('/').next()?.to_owned()),
        None => known.get(&inner).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn list(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn what_env_starts_is_found() {
        let of = |words: &[&str]| after_env(&["/usr/bin/env".into()], &list(words));
        assert_eq!(of(&["-i", "A=b", "prog", "-x", "c=d"]), list(&["prog", "-x", "c=d"]));
        assert_eq!(of(&["-u", "HOME", "prog"]), list(&["prog"]));
        let here = tempfile::tempdir().unwrap();
        let script = write(here.path(), "script", "#!/usr/bin/env -S A=b python3 -u\nprint()\n");
        let path = script.to_str().unwrap();
        let started = after_env(&[script.clone(), "/usr/bin/env".into()], &list(&["x"]));
        assert_eq!(started, list(&["python3", "-u", path, "x"]));
    }

    #[test]
    fn the_libraries_that_env_preloads_are_found() {
        let of = |words: &[&str]| preload_after_env(&["/usr/bin/env".into()], &list(words), "a.so".into());
        assert_eq!(of(&["LD_PRELOAD=b.so c.so", "prog", "LD_PRELOAD=d.so"]), "b.so c.so");
        assert_eq!((of(&["A=b", "prog"]), of(&["-i", "prog"])), ("a.so".into(), "".into()));
        assert_eq!(of(&["-u", "LD_PRELOAD", "prog"]), "");
    }

    #[test]
    fn a_script_that_ends_in_exec_is_followed() {
        let here = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let script = write(here.path(), "shim", text);
            next(&script, &[script.clone(), "/bin/sh".into()], &list(&["a b", "c"]))
        };
        let usual = "#!/bin/sh\n# a comment\nset -e\nexport DIR=\"/bin\"\nexec \"$DIR/cat\" -n \"$@\"\n";
        assert_eq!(of(usual), Some(list(&["/bin/cat", "-n", "a b", "c"])));
        assert_eq!(of("#!/bin/sh\nexec sh -x ${0##*/}\n"), Some(list(&["sh", "-x", "shim"])));
        for unknown in [
            "#!/bin/sh\necho done\n",
            "#!/bin/sh\nexec \"$(find it)\" \"$@\"\n",
            "#!/bin/sh\nexec $UNSET/cat\n",
            "#!/bin/sh\nexec cat | sort\n",
            "#!/bin/sh\nexec no-such-program-here\n",
            "#!/bin/sh\nexec \"$0\"\n",
        ] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_shims_of_a_version_manager_are_followed() {
        let here = tempfile::tempdir().unwrap();
        let real = write(here.path(), "versions/3.12/bin/python3", "");
        let manager = format!("#!/bin/sh\n[ $1 = which ] && [ $2 = python3 ] && echo {}\n", real.display());
        let manager = write(here.path(), "libexec/pyenv", &manager);
        let shim = format!(
            "#!/usr/bin/env bash\nset -e\n[ -n \"$PYENV_DEBUG\" ] && set -x\n\nprogram=\"${{0##*/}}\"\n\n\
             export PYENV_ROOT=\"{}\"\nexec \"{}\" exec \"$program\" \"$@\"\n",
            here.path().display(),
            manager.display()
        );
        let shim = write(here.path(), "shims/python3", &shim);
        let shell = next(&shim, &[shim.clone(), "/usr/bin/env".into()], &list(&["x.py"])).unwrap();
        assert_eq!(shell, list(&["bash", shim.to_str().unwrap(), "x.py"]));
        let bash = PathBuf::from("/bin/bash");
        let first = next(&bash, std::slice::from_ref(&bash), &shell[1..]).unwrap();
        assert_eq!(first, list(&[manager.to_str().unwrap(), "exec", "python3", "x.py"]));
        let second = next(&manager, &[manager.clone(), "/bin/sh".into()], &first[1..]).unwrap();
        assert_eq!(second, list(&[real.to_str().unwrap(), "x.py"]));
        assert_eq!(next(&manager, &[manager.clone(), "/bin/sh".into()], &list(&["exec", "absent"])), None);
    }

    #[test]
    fn conda_run_takes_the_program_of_its_environment() {
        let here = tempfile::tempdir().unwrap();
        let conda = write(here.path(), "bin/conda", "");
        let python = write(here.path(), "envs/ml/bin/python", "");
        let of = |words: &[&str]| next(&conda, std::slice::from_ref(&conda), &list(words));
        let found = python.to_str().unwrap();
        assert_eq!(of(&["run", "-n", "ml", "--live-stream", "python", "-n"]), Some(list(&[found, "-n"])));
        assert_eq!(of(&["run", "-n", "ml", "other"]), Some(list(&["other"])));
        assert_eq!((of(&["run", "-n"]), of(&["install", "x"])), (None, None));
    }
}
