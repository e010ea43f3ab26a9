;; A loop that its compiler makes fast, and lists beyond the budget.
(defun work (n) (declare (fixnum n)) (let ((tt 0)) (declare (fixnum tt)) (dotimes (i n tt) (setf tt (mod (+ tt (* i 7)) 1000003)))))
(let* ((many (parse-integer (car (last sb-ext:*posix-argv*)))) (rows (make-array many)) (sum 0))
  (dotimes (i many) (setf (aref rows i) (list i (* i 2) (format nil "~d" i))))
  (dotimes (i many)
    (let ((row (aref rows i)))
      (unless (and (= (first row) i) (string= (third row) (format nil "~d" i))) (sb-ext:exit :code 9))
      (setf sum (mod (+ sum (second row)) 1000003))))
  (format t "~d ~d ~d~%" (work 50000000) many sum))
