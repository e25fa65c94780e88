module sluice.dev/assets/consumer

go 1.24.0
