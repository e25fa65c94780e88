module sluice.dev/tests/semver

go 1.25.0

require github.com/Masterminds/semver/v3 v3.5.0
