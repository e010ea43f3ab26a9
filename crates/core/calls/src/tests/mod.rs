//! The table against the kernel's own signatures and numbers, and what visits announce.

mod signatures;
mod visits;

/// The calls in the first column of a table of docs/host.md are those that a host traps.
#[test]
fn the_page_on_hosts_names_the_calls_that_are_trapped() {
    use std::collections::BTreeSet;
    let page = include_str!("../../../../../docs/host.md");
    let (_, table) = page.split_once("| calls | because |\n").unwrap();
    let cells =
        table.lines().take_while(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
    let words = cells.flat_map(|cell| cell.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let names: BTreeSet<_> = crate::rows(crate::Machine::X86).map(|(_, row)| row.name).collect();
    let named: BTreeSet<_> = words.filter(|word| names.contains(word)).collect();
    let rows = crate::rows(crate::Machine::X86).map(|(_, row)| row).filter(|row| row.hosted.is_some());
    assert_eq!(named, rows.map(|row| row.name).collect());
}
