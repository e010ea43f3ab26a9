"""A loop that Cranelift compiles, and a linear memory beyond the budget."""
import sys

from wasmtime import Instance, Module, Store

TEXT = """(module
  (memory (export "memory") 1 32768)
  (func (export "grow") (param i32) (result i32) local.get 0 memory.grow)
  (func (export "fill") (param $bytes i32) (local $at i32)
    (loop $next
      (i32.store (local.get $at) (i32.mul (local.get $at) (i32.const 31)))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $at) (local.get $bytes)))))
  (func (export "wrong") (param $bytes i32) (result i32) (local $at i32) (local $count i32)
    (loop $next
      (local.set $count (i32.add (local.get $count)
        (i32.ne (i32.load (local.get $at)) (i32.mul (local.get $at) (i32.const 31)))))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $at) (local.get $bytes))))
    (local.get $count)))"""

pages = int(sys.argv[1])
store = Store()
exports = Instance(store, Module(store.engine, TEXT), []).exports(store)
assert exports["grow"](store, pages) == 1
exports["fill"](store, pages << 16)
print(pages, exports["wrong"](store, pages << 16), exports["wrong"](store, pages << 16))
