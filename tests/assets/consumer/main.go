// A consumer as Flux's controllers are one: fetches an artifact with Go's own client and checks what it is told.
//
//	artifact-consumer <url> <size> <digest>
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := consume(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("whole and resumed")
}

func consume(url, size, digest string) error {
	want, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	whole, err := get(url, "", http.StatusOK, want)
	if err != nil {
		return err
	}
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(whole)); sum != digest {
		return fmt.Errorf("expected digest %s, got %s", digest, sum)
	}
	half := want / 2
	rest, err := get(url, fmt.Sprintf("bytes=%d-", half), http.StatusPartialContent, want-half)
	if err != nil {
		return err
	}
	if string(whole[half:]) != string(rest) {
		return fmt.Errorf("the second half differs")
	}
	return nil
}

func get(url, byteRange string, status int, size int64) ([]byte, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if byteRange != "" {
		request.Header.Set("Range", byteRange)
	}
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{Proxy: nil}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != status {
		return nil, fmt.Errorf("expected status %d, got %s", status, answer.Status)
	}
	if answer.ContentLength != size || answer.Uncompressed || len(answer.TransferEncoding) > 0 {
		return nil, fmt.Errorf("expected artifact size %d, got %d (coding %v)", size, answer.ContentLength, answer.TransferEncoding)
	}
	return io.ReadAll(answer.Body)
}
