// Package verify compares a server's answers with the right ones: a server that
// is quick with wrong bytes is no use.
package verify

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"millrace/bench/subjects/internal/testsite"
	"millrace/bench/subjects/internal/workload"
)

const (
	// bodyLimit is more than any small file has.
	bodyLimit = 1 << 20
	// timeout bounds all answers on one connection.
	timeout = 10 * time.Second
)

// Small sends the requests over conn after each other, as the load generator
// does, and compares each answer with the right bytes of its file.
func Small(conn net.Conn, requests []workload.Request, right func(testsite.File) ([]byte, error)) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	for _, request := range requests {
		if _, err := io.WriteString(conn, request.Head); err != nil {
			return fmt.Errorf("asking for %s: %w", request.File.Path, err)
		}
		want, err := right(request.File)
		if err != nil {
			return err
		}
		if err := compare(r, want); err != nil {
			return fmt.Errorf("the answer to %s: %w", request.File.Path, err)
		}
	}
	return nil
}

// compare reads one answer, which must be a 200 with the bytes of want.
func compare(r *bufio.Reader, want []byte) error {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	body, err := decode(raw, resp.Header.Get("Content-Encoding"))
	if err != nil {
		return err
	}
	if !bytes.Equal(body, want) {
		return fmt.Errorf("%d bytes that are not the right %d", len(body), len(want))
	}
	return nil
}

// decode undoes a Content-Encoding.
func decode(raw []byte, encoding string) ([]byte, error) {
	var r io.Reader = bytes.NewReader(raw)
	switch strings.ToLower(encoding) {
	case "":
		return raw, nil
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("unpacking gzip: %w", err)
		}
		r = z
	case "br":
		r = brotli.NewReader(r)
	case "zstd":
		z, err := zstd.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("unpacking zstd: %w", err)
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("the encoding %q was not asked for", encoding)
	}
	body, err := io.ReadAll(io.LimitReader(r, bodyLimit))
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", encoding, err)
	}
	return body, nil
}
