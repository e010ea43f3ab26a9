! COMMON blocks, as older Fortran programs keep their arrays. N comes from the compiler's command line.
program common_blocks
  implicit none
  integer, parameter :: n = N_VALUES
  integer(8) :: u(n), v(n), w(n), total
  common /fields/ u, v
  common /field/ w
  integer :: i, pass
  do i = 1, n
    u(i) = i
    v(i) = 2_8 * i + 5
  end do
  do pass = 1, 2
    do i = 2, n - 1
      w(i) = u(i - 1) - 2 * u(i) + u(i + 1) + v(i)
    end do
    call relax()
  end do
  total = 0
  do i = 1, n
    total = ieor(total, u(i) * 31 + v(i) * 17 + w(i))
  end do
  print '(a, i0)', 'checksum ', total
end program

subroutine relax()
  implicit none
  integer, parameter :: n = N_VALUES
  integer(8) :: u(n), v(n), w(n)
  common /fields/ u, v
  common /field/ w
  integer :: i
  do i = 1, n
    u(i) = u(i) + w(i) / 3
    v(i) = ieor(v(i), w(i))
  end do
end subroutine
