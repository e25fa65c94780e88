// Asks Go's net/url which addresses it takes, for vectors.jsonl: an address, and why it is refused ("" if it is not).
// The version in go.mod is that of Flux's source-controller 1.9 and decides how strict Go is. `make vectors` compares; to make the
// file again: go run . > vectors.jsonl
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net/url"
	"strings"
)

var written = []string{
	"https://example.org/a/b.git", "https://example.org", "https://example.org/", "https://example.org?x=1", "https://example.org/a?",
	"https://example.org/a#b", "https://example.org#", "HTTPS://EXAMPLE.ORG/a", "ssh://git@example.org/a", "ssh://git@example.org:22/a",
	"ssh://example.org/~ada/b", "ssh://git@[::1]:22/a%20b?c#d", "http://127.0.0.1:1/%zz", "https://h/%", "https://h/%2", "https://h/%2f",
	"https://h/%2F%41", "https://h/a%", "https://h/a%g0", "https://h/?%zz", "https://h/?a=%", "https://h/#%zz", "https://h/#%41", "ssh://h/%zz",
	"https://h%41/", "https://h%zz/", "https://h%2fx/", "https://h%80/", "https://h%C3%A4/", "https://h%25/", "https://h%/", "https://%",
	"https://ä.example/ö", "https://h/ä b", "https://a b/", "https://h/a b", "https://h<x/", "https://h>/", "https://h\"/", "https://h^/",
	"https://h`/", "https://h{/", "https://h|x/", "https://h\\x/", "https://h/\\", "https://h_x/", "https://h!$&'()*+,;=x/", "https://h~/",
	"https://h:/", "https://h:80/", "https://h:080/", "https://h:x/", "https://h:8x/", "https://h:-1/", "https://h:80:90/", "ssh://h:80:90/",
	"ssh://h:80:x/", "ssh://::1/a", "https://::1/", "https://:80/", "https://:/", "https://", "https:///", "https:///a", "http://?", "http://#",
	"https://[::1]/", "https://[::1]:/", "https://[::1]:443/", "https://[::1]443/", "https://[::1]:x/", "https://[::1/", "https://::1]/",
	"https://[]/", "https://[x]/", "https://[1.2.3.4]/", "https://[::ffff:1.2.3.4]/", "https://[::1.2.3.04]/", "https://[fe80::1%25eth0]/",
	"https://[fe80::1%eth0]/", "https://[fe80::1%25]/", "https://[fe80::1%25a%20b]/", "https://[fe80::1%25a%2fb]/", "https://[::g]/",
	"https://a[::1]/", "https://[[::1]]/", "https://[::1]]/", "https://[1:2:3:4:5:6:7]/", "https://[1:2:3:4:5:6:7:8]/", "https://[1:2:3:4:5:6:7:8:9]/",
	"https://u@h/", "https://u:p@h/", "https://u:@h/", "https://:p@h/", "https://@h/", "https://u:p:q@h/", "https://u:p@q@h/", "https://u%40x:p%2Fq@h/",
	"https://u:%zz@h/", "https://%@h/", "https://u:p%@h/", "https://u:p/q@h/", "https://u:p#q@h/", "https://u:p?q@h/", "https://u:p[q@h/", "https://u:p]q@h/",
	"https://u:p q@h/", "https://u:p\"q@h/", "https://ü:p@h/", "https://u:p^q@h/", "https://u\\:p@h/", "https://u:p@", "https://user:pw@:x/",
	"https://h/\n", "https://h/\t", "https://h\n/", "https://h/\x7f", "https://h/\x00", "https://u:p\n@h/", "https://h/#\n", "https://h/?\n", "https://h/\u0085",
	"http://1.2.3.256/", "http://1.2.3/", "http://0x7f.1/", "http://127.1/", "http://h:0/", "http://h:65535/", "http://h:65536/", "http://h:99999999999999999999/",
	"http://h./", "http://.h/", "http://h../", "http://-h/", "http://xn--a/", "http://xn--/", "http://a..b/", "http://" + strings.Repeat("a", 70) + "/",
	"http://" + strings.Repeat("a.", 130) + "/", "http://h//a", "http://h/./a/../b", "http://h/a;b", "http://h/[a]", "http://h/%5Ba%5D", "http://h/%00", "http://h/%0a",
	"http://\u00ad/", "http://a\u200bb/", "http://\u2100/", "http://h\u3002x/", "http://\u212a/", "https://h/\\..\\x", "https:/h", "https:h", "https://*", "https://*/a",
}

func made(source *rand.Rand) string {
	choose := func(of ...string) string { return of[source.Intn(len(of))] }
	text := choose("http", "https", "ssh") + "://"
	if source.Intn(3) == 0 {
		text += choose("", "u", "%41", "u%zz", "ü", "u@x") + choose("", "", ":", ":p", ":%", ":p%2f", ":p q", ":p[") + "@"
	}
	text += choose("h", "h.example", "H", "1.2.3.4", "[::1]", "[fe80::1%25e]", "[::1", "h x", "h%41", "h%e4", "a_b", "", "h:1", "::2", "h<")
	text += choose("", "", ":", ":8", ":x", ":8:9")
	for source.Intn(2) == 0 {
		text += "/" + choose("", "a", "%", "%2", "%2f", "%zz", "a b", "ä", "\\", "..", "a:b", "@", "[", "\x01")
	}
	text += choose("", "", "", "?", "?a=%zz", "?\x02", "#", "#a", "#%zz", "#\x03")
	return text
}

func main() {
	addresses := written
	source := rand.New(rand.NewSource(21))
	for range 600 {
		addresses = append(addresses, made(source))
	}
	seen := map[string]bool{}
	for _, address := range addresses {
		if seen[address] {
			continue
		}
		seen[address] = true
		_, err := url.Parse(address)
		why := ""
		var refusal *url.Error
		if errors.As(err, &refusal) {
			why = refusal.Err.Error()
		}
		line, err := json.Marshal([]string{address, why})
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
