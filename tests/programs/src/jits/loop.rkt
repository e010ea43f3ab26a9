#lang racket/base
; A loop that its compiler makes faster, and lists beyond the budget.
(define many (string->number (vector-ref (current-command-line-arguments) 0)))
(define (work i t) (if (= i 10000000) t (work (+ i 1) (modulo (+ t (* i 7)) 1000003))))
(define rows (for/vector #:length many ([i (in-range many)]) (list i (* i 2) (number->string i))))
(define (check)
  (for/fold ([sum 0]) ([i (in-range many)])
    (define row (vector-ref rows i))
    (unless (and (= (car row) i) (string=? (caddr row) (number->string i))) (exit 9))
    (modulo (+ sum (cadr row)) 1000003)))
(displayln (list (work 0 0) many (check) (check)))
