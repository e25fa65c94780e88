// Asks Masterminds/semver what it makes of constraints, versions and tags, for vectors.txt. `make vectors` compares. To make
// that file again:
//
//	cd runtime/tests/semver && go run . > vectors.txt
package main

import (
	"fmt"
	"math/rand"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// In rising order.
var versions = []string{
	"0.0.0-a", "0.0.0", "0.0.1", "0.0.3-beta.2", "0.0.3", "0.1.0", "0.2.0-0", "0.2.3", "0.2.4", "0.3.0",
	"1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta", "1.0.0-rc.9", "1.0.0-rc.10", "v1.0.0", "1.0.1+build", "1.2.0",
	"1.2.3-pre", "1.2.3", "1.2.4", "1.3.0", "1.11.0", "2.0.0-0", "2.0.0", "2.0.1", "2.1.5", "3.0.0", "11.0.0",
	"v2025.02.03-rc.1", "v2025.2.3",
}

var written = []string{
	"", " ", "*", "x", "X", ">0", ">=0", "1", "v1", "1.x", "1.2", "1.2.x", "1.2.3", "=1.2.3", "= 1.2.3", "==1.2.3", "!=1.2.3",
	"!=1.2", "!=1", "!=1.x", "!=*", "!=1.2.x-pre", ">1", ">1.2", ">1.2.3", ">*", ">=1", ">=1.2", ">=1.2.3", "=>1.2.3", "<1",
	"<1.2", "<1.2.3", "<*", "<=1", "<=1.2", "<=1.2.3", "=<1.2.3", "<=*", "<=0", "~1", "~1.2", "~1.2.3", "~>1", "~>1.2",
	"~>1.2.3", "~0", "~0.0", "~0.0.0", "~0.0.0-a", "~*", "~1.x", "~1.2.x", "^1", "^1.2", "^1.2.3", "^0", "^0.0", "^0.0.3",
	"^0.2", "^0.2.3", "^*", "^1.x", "^0.x", "^0.2.x", "^0.0.3-0", "1.0 - 2.0", "1.2.3 - 2", "1.2.3 - 2.0.1, !=1.3.0",
	"0.1 - 0.2.3 || 1.2 - 1.3", "1 -2", "1- 2", "1.0.0-alpha - 1.0.0", ">=1.0.0 <2.0.0", ">=1.0.0, <2.0.0", ">=1.0.0,<2.0.0",
	">=1.0.0 , <2.0.0", ">=1.0.0,, <2.0.0", "<1 || >=2", "<1||>=2", "<1|>=2", "1|2", "||", "1||", "||1", ">=1.0.0-0",
	">=1.0.0-0 <1.1.0-0", ">=1.0.0 <1.1.0-0", ">=1.0.0-0 || >2", ">1.0.0-alpha", "1.0.0-rc.9", "~1.0.0-rc.9", "^1.0.0-rc.9",
	">=0.0.0-0", "*-0", "1.x-0", "1.2.x-0", ">=1-0", "<2-0", "1.2.3+build", ">=1.0.1+other", "1.0.1+build", "v1.2.3 v1.2.3",
	">= v1.2.3, <= v2", "a", "1.a", "1.2.3.4", "1..2", ">>1", "> > 1", "1 2", "1,2", "~> 1.2", "^ 1", "! 1", "01.02.03", "1xx",
	"1.0.0-01", "99999999999999999999", "\t1.2.3\n", "1.2.3\u00a0", "\u00e4", "=1.2.3 || =2.0.0", "<v0.2.1", ">=2025.02.01-0",
	"x.2", "*.*.*", "1.*.3", ">=1.2.3-pre, <1.2.4", "!=1.0.0-rc.10", "!=1.2.3, ~1.2", "^1, !=1.11", ">1.2.3-pre <=1.2.3",
	strings.Repeat("1 ", 256), strings.Repeat("1 ", 257), strings.Repeat("1||", 31) + "1", strings.Repeat("1||", 32) + "1",
}

var tags = []string{"v1", "1.2", "1.2-a.b", "V1.2.3", "1.2.3-", "1.2.3+", "1.2.3-a..b", "01.02.003", "1.2.3-01", "1.2.3-0a", "1.2.3+01",
	"foo/v1.2.3", "1.2.3.4", "v-1.2.3", "1.2.18446744073709551615", "1.2.18446744073709551616", " 1.2.3", "1.2.3-a+b.c-d"}

func made(source *rand.Rand) string {
	choose := func(of ...string) string { return of[source.Intn(len(of))] }
	part := func() string { return choose("0", "1", "2", "x", "*", "3") }
	comparator := func() string {
		version := choose("", "v") + part()
		if source.Intn(4) > 0 {
			version += "." + part()
			if source.Intn(3) > 0 {
				version += "." + part()
			}
		}
		return choose("", "", "=", "!=", ">", "<", ">=", "<=", "~", "^", "~>") + choose("", " ") + version +
			choose("", "", "", "-0", "-alpha", "-rc.10", "+b")
	}
	text := comparator()
	for source.Intn(2) == 0 {
		text += choose(" ", ", ", ",", " || ", "||", " - ") + comparator()
	}
	return text
}

func main() {
	fmt.Printf("versions %s\n", strings.Join(versions, " "))
	for _, tag := range tags {
		_, err := semver.NewVersion(tag)
		good := err == nil && len(strings.SplitN(strings.TrimPrefix(tag, "v"), ".", 3)) == 3
		fmt.Printf("tag %q %v\n", tag, good)
	}
	seeded := rand.New(rand.NewSource(4))
	constraints := written
	for range 400 {
		constraints = append(constraints, made(seeded))
	}
	for _, text := range constraints {
		constraint, err := semver.NewConstraint(text)
		if err != nil {
			fmt.Printf("error %q %s\n", text, err)
			continue
		}
		answer := ""
		for _, version := range versions {
			bit := "0"
			if constraint.Check(semver.MustParse(version)) {
				bit = "1"
			}
			answer += bit
		}
		fmt.Printf("admits %q %s\n", text, answer)
	}
}
