module sluice.dev/assets/pause

go 1.24.0
