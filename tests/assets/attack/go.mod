module sluice.dev/assets/attack

go 1.24.0
