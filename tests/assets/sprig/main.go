// Asks Go's text/template with sprig what it makes of the templates in templates.txt, and writes vectors.jsonl:
//
//	cd tests/assets/sprig && go run .
//
// A line of templates.txt is a template, a comment (#), or nothing. "~name " before a template says that the answer
// differs from ours on purpose; name is an entry of the list of differences in docs/reference/templates.md.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

// vector is what the original makes of one template: a text, or an error.
type vector struct {
	Template string  `json:"template"`
	Output   *string `json:"output"`
	Differs  string  `json:"differs,omitempty"`
}

func main() {
	time.Local = time.UTC
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	list, err := os.ReadFile("templates.txt")
	if err != nil {
		return err
	}
	data, err := os.ReadFile("data.json")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	lines := bufio.NewScanner(bytes.NewReader(list))
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var differs string
		if rest, marked := strings.CutPrefix(line, "~"); marked {
			differs, line, _ = strings.Cut(rest, " ")
		}
		made := vector{Template: line, Differs: differs}
		if text, err := render(line, data); err == nil {
			if differs == "now" {
				text = "the time"
			}
			made.Output = &text
		}
		if err := encoder.Encode(made); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return os.WriteFile("vectors.jsonl", out.Bytes(), 0o644)
}

// render gives each template data of its own: some functions change what they are given.
func render(text string, raw []byte) (string, error) {
	var data any
	if err := json.Unmarshal(raw, &data); err != nil {
		return "", err
	}
	parsed, err := template.New("main").Funcs(sprig.TxtFuncMap()).Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, data)
	return out.String(), err
}
