//! `signatures.txt` has a line for each call: its name, its number on x86-64 and on 64-bit Arm, and
//! a letter for each argument: `p` for a pointer, `v` for a value; `.` if there are none, and `?` if
//! the signature is not known. Numbers are those of the kernel's headers, and signatures those that
//! Linux 6.18 gives in `events/syscalls/sys_enter_*/format` of its tracing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, print, println};

use crate::row::{Arg, Row};
use crate::{Machine, rows};

const SIGNATURES: &str = include_str!("signatures.txt");

/// Pointers of which the kernel touches nothing.
const ADDRESSES: [&str; 3] = ["getcpu", "shmat", "shmdt"];
/// Numbers that are memory all the same.
const FAULTED_IN: [&str; 2] = ["mlock", "mlock2"];

/// What is wrong with the row's arguments.
fn objection(row: &Row, signature: &str) -> Option<String> {
    if row.args.len() != signature.len() {
        return Some(format!("{}: {} arguments, not {}", row.name, signature.len(), row.args.len()));
    }
    for (i, (arg, letter)) in row.args.iter().zip(signature.chars()).enumerate() {
        let right = match (letter, arg) {
            ('p', Arg::Value) => false,
            ('p', Arg::Address) => ADDRESSES.contains(&row.name),
            ('v', Arg::In(_) | Arg::Out(_) | Arg::Both(_) | Arg::Text(_)) => FAULTED_IN.contains(&row.name),
            _ => true,
        };
        if !right {
            return Some(format!("{}: argument {i} is {letter} for the kernel", row.name));
        }
    }
    None
}

fn number(field: &str) -> Option<usize> {
    (field != "-").then(|| field.parse().unwrap())
}

#[test]
fn every_call_has_its_row() {
    let mut objections = Vec::new();
    let (x86, arm): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (rows(Machine::X86).collect(), rows(Machine::Arm).collect());
    let mut count = (0, 0);
    for line in SIGNATURES.lines() {
        let [name, on_x86, on_arm, letters] = *line.split(' ').collect::<Vec<_>>() else { panic!("{line}") };
        for (machine, number, count) in
            [(&x86, number(on_x86), &mut count.0), (&arm, number(on_arm), &mut count.1)]
        {
            let Some(number) = number else { continue };
            *count += 1;
            match machine.get(&number) {
                Some(row) if row.name == name && letters != "?" => {
                    objections.extend(objection(row, letters.trim_matches('.')));
                }
                Some(row) if row.name == name => (),
                _ => objections.push(format!("{name} {number} is missing")),
            }
        }
    }
    assert!(objections.is_empty(), "{objections:#?}");
    assert_eq!(count, (x86.len(), arm.len()), "rows that are no calls");
}

/// Signatures by name, as the running kernel gives them.
fn of_running_kernel() -> Option<BTreeMap<String, String>> {
    const LIST: &str = "cd /sys/kernel/tracing/events/syscalls && grep -H field: sys_enter_*/format";
    let as_is = Command::new("sh").args(["-c", LIST]).output().ok()?;
    let mounted = if as_is.status.success() {
        as_is
    } else {
        let mount = format!("mount -t tracefs tracefs /sys/kernel/tracing && {LIST}");
        Command::new("unshare").args(["-m", "sh", "-c", &mount]).output().ok()?
    };
    let mut calls: BTreeMap<String, String> = BTreeMap::new();
    for line in String::from_utf8(mounted.stdout).ok()?.lines() {
        let (file, field) = line.split_once("/format:")?;
        let field = field.trim().strip_prefix("field:")?.split(';').next()?;
        let letters = calls.entry(headers_name(file.strip_prefix("sys_enter_")?).to_string()).or_default();
        if !field.contains(" common_") && !field.contains("__syscall_nr") {
            // The types of capabilities hide their pointers.
            letters.push(if field.contains('*') || field.contains("cap_user_") { 'p' } else { 'v' });
        }
    }
    (calls.len() > 200).then_some(calls)
}

/// The name in the headers of a function of the kernel.
fn headers_name(function: &str) -> &str {
    match function {
        "newfstat" => "fstat",
        "newlstat" => "lstat",
        "newstat" => "stat",
        "newuname" => "uname",
        "sendfile64" => "sendfile",
        "umount" => "umount2",
        other => other,
    }
}

#[test]
fn the_running_kernel_agrees() {
    let Some(calls) = of_running_kernel() else {
        println!("SKIPPED: no tracefs, or no syscalls in it");
        return;
    };
    // Numbers may be of another machine, names are not.
    let table: BTreeMap<_, _> =
        rows(Machine::X86).chain(rows(Machine::Arm)).map(|(_, row)| (row.name, row)).collect();
    let mut objections = Vec::new();
    for (name, letters) in &calls {
        match table.get(name.as_str()) {
            Some(row) => objections.extend(objection(row, letters)),
            None => objections.push(format!("{name} is missing")),
        }
    }
    assert!(objections.is_empty(), "{objections:#?}");
    println!("{} calls of the running kernel", calls.len());
}

/// Numbers in a header by name: lines such as `#define __NR_read 63`.
fn of_header(path: &str) -> Option<BTreeMap<String, usize>> {
    let text = read_to_string(path).ok()?;
    let mut numbers = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let ["#define", name, number, ..] = *words
            && let (Some(name), Ok(number)) =
                (name.strip_prefix("__NR_").or(name.strip_prefix("__NR3264_")), number.parse())
        {
            numbers.insert(name.to_string(), number);
        }
    }
    Some(numbers)
}

#[test]
fn the_installed_headers_agree() {
    // Of the general list, 64-bit Arm has what is not for 32 bits or for one machine.
    let not_arms: BTreeSet<_> = ["arch_specific_syscall", "syscalls", "sync_file_range2"].into();
    for (machine, paths) in [
        (Machine::X86, ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]),
        (
            Machine::Arm,
            ["/usr/include/asm-generic/unistd.h", "/usr/aarch64-linux-gnu/include/asm-generic/unistd.h"],
        ),
    ] {
        let Some(numbers) =
            paths.iter().filter(|path| Path::new(path).exists()).find_map(|path| of_header(path))
        else {
            println!("SKIPPED: no header of {machine:?} in {paths:?}");
            continue;
        };
        let table: BTreeMap<_, _> = rows(machine).collect();
        let mut missing = String::new();
        for (name, number) in &numbers {
            // Those for 32 bits have numbers of their own, and so have their names.
            let of_32_bits = (403..424).contains(number);
            let name = if name == "fstatat" { "newfstatat" } else { name };
            if of_32_bits || not_arms.contains(name) {
                continue;
            }
            if table.get(number).is_none_or(|row| row.name != name) {
                missing += &format!("{name} {number} ");
            }
        }
        print!("{} numbers of {machine:?}; ", numbers.len());
        assert_eq!(missing, "", "{machine:?}");
    }
    println!();
}
