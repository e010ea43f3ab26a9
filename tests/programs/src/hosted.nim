# A Nim program: a table of strings, and a sequence that is sorted. Usage: hosted ENTRIES
import std/[algorithm, os, strutils, tables]

let entries = paramStr(1).parseInt
var names: Table[int, string]
for i in 0 ..< entries:
  names[i * 7919 mod 1_000_003] = "value " & $i
var numbers = newSeq[int](4 * entries)
for i in 0 ..< numbers.len:
  numbers[i] = (i * 7919) mod 1_000_003
numbers.sort()
var sum = 0
for i in 0 ..< entries:
  sum = (sum * 31 + names[i * 7919 mod 1_000_003].len + numbers[3 * i]) mod 1_000_003
echo names.len, " ", sum
