; A loop that its compiler makes faster, and lists beyond the budget.
(define many (string->number (cadr (command-line))))
(define (work i t) (if (= i 10000000) t (work (+ i 1) (modulo (+ t (* i 7)) 1000003))))
(define rows (make-vector many #f))
(let fill ((i 0)) (if (< i many) (begin (vector-set! rows i (list i (* i 2) (number->string i))) (fill (+ i 1)))))
(define (check i sum)
  (if (= i many)
      sum
      (let ((row (vector-ref rows i)))
        (if (not (and (= (car row) i) (string=? (caddr row) (number->string i)))) (exit 9))
        (check (+ i 1) (modulo (+ sum (cadr row)) 1000003)))))
(display (list (work 0 0) many (check 0 0) (check 0 0)))
(newline)
