module vectors

go 1.26
