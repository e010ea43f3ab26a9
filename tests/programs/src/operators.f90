! Arrays of many sizes that come and go, and texts that grow, whoever serves malloc.
program operators
   implicit none
   type :: row
      real(8), allocatable :: values(:)
      character(len=:), allocatable :: name
   end type
   type(row), allocatable :: rows(:)
   character(len=32) :: word
   integer :: i, mib, many, length
   real(8) :: total
   call get_command_argument(1, word)
   read (word, *) mib
   many = mib*800
   allocate (rows(many))
   do i = 1, many
      length = 20 + mod(i*37, 200)
      if (mod(i, 500) == 0) length = 30000
      allocate (rows(i)%values(length))
      rows(i)%values = real(i, 8)
      write (word, '(i0)') i
      rows(i)%name = trim(word)
   end do
   do i = 1, many, 3
      rows(i)%values = [rows(i)%values, rows(i)%values]
      rows(i)%name = rows(i)%name//' and a longer name'
   end do
   total = 0
   do i = 1, many
      if (any(rows(i)%values /= real(i, 8))) stop 9
      total = total + size(rows(i)%values) + len(rows(i)%name)
      if (mod(i, 2) == 0) deallocate (rows(i)%values)
   end do
   deallocate (rows)
   print '(f0.0)', total
end program
