package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/condition"
	"millrace/internal/wire/field"
	"millrace/static/original"
)

// Why an answer is not used.
var (
	errStatus = errors.New("the host answers with status")
	errLarge  = errors.New("the file is larger than is fetched")
	errType   = errors.New("the host did not send an image")
)

// ask asks a file's host for it, or whether it is still the one that is kept.
func (s *Source) ask(ctx context.Context, name string, kept *file) outcome {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(name).String(), nil)
	if err != nil {
		return outcome{err: err}
	}
	r.Header = http.Header{
		"Accept":          {"image/*, */*;q=0.1"},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {"millrace"},
		"Via":             {s.via}, // RFC 9110, 7.6.3: to know a loop by
	}
	if kept != nil { // RFC 9110, 13.1
		if kept.ETag != "" {
			r.Header.Set("If-None-Match", kept.ETag)
		} else if !kept.Modified.IsZero() {
			r.Header.Set("If-Modified-Since", kept.Modified.UTC().Format(http.TimeFormat))
		}
	}
	began := time.Now()
	answer, err := s.client.Do(r)
	if err != nil {
		return outcome{err: err}
	}
	defer answer.Body.Close()
	fresh := s.freshness(answer.Header, began)
	switch code := answer.StatusCode; {
	case code == http.StatusNotModified && kept != nil:
		return outcome{file: kept, fresh: fresh, checked: began}
	case refused(code):
		if kept != nil {
			_ = s.keep.Delete(ctx, s.key(name)) // it would be asked for again before it is used
		}
		return outcome{err: fmt.Errorf("%w: %w %d", original.ErrNone, errStatus, code)}
	case code != http.StatusOK:
		return outcome{err: fmt.Errorf("%w %d", errStatus, code)}
	}
	f := &file{Remote: version, URL: s.url(name).String(), ETag: tag(answer.Header.Get("Etag")), Fetched: began, Fresh: fresh}
	if at, ok := condition.ParseDate(answer.Header.Get("Last-Modified"), began); ok {
		f.Modified = at
	}
	if err := s.take(ctx, name, f, answer); err != nil {
		return outcome{err: err}
	}
	return outcome{file: f, fresh: fresh, checked: began}
}

// refused reports whether a host has said that there is no such file, or none
// for us: it may not be served any more. S3 answers 403 for files that are not
// there, where its user may not list them.
func refused(code int) bool {
	switch code {
	case http.StatusNotFound, http.StatusGone, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnavailableForLegalReasons:
		return true
	}
	return false
}

// longestTag bounds what is kept and sent back of an entity tag.
const longestTag = 256

func tag(etag string) string {
	if len(etag) > longestTag {
		return ""
	}
	return etag
}

// sniffed is how many bytes of a content are looked at for its type.
const sniffed = 512

// take puts an answer's body into the store, and what it finds out into f.
func (s *Source) take(ctx context.Context, name string, f *file, answer *http.Response) error {
	if coding := answer.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return fmt.Errorf("%w: it is coded as %.40q", errType, coding)
	}
	if answer.ContentLength > int64(s.o.Largest) {
		return fmt.Errorf("%w: %d bytes, at most %v are", errLarge, answer.ContentLength, s.o.Largest)
	}
	// One byte more than allowed shows that there is more.
	stream := io.LimitReader(answer.Body, int64(s.o.Largest)+1)
	begin := make([]byte, sniffed)
	n, err := io.ReadFull(stream, begin)
	begin = begin[:n]
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	// If the connection was cut, the stream says so again below.
	if f.Type, err = mediaType(answer.Header.Get("Content-Type"), begin); err != nil {
		return err
	}
	w, err := s.keep.Create(ctx, s.key(name), answer.ContentLength)
	if err != nil {
		return fmt.Errorf("keeping what was fetched: %w", err)
	}
	hash := sha256.New()
	f.Size, err = io.Copy(io.MultiWriter(w, hash), io.MultiReader(bytes.NewReader(begin), stream))
	if err == nil && f.Size > int64(s.o.Largest) {
		err = fmt.Errorf("%w: at most %v are", errLarge, s.o.Largest)
	}
	if err == nil && f.Size == 0 {
		err = fmt.Errorf("%w: it is empty", errType)
	}
	if err != nil {
		_ = w.Abort() // nothing is left behind
		return err
	}
	f.Hash = hex.EncodeToString(hash.Sum(nil)[:16])
	head, err := json.Marshal(f)
	if err == nil {
		err = w.Commit(head)
	} else {
		_ = w.Abort() // nothing is left behind
	}
	if err != nil {
		return fmt.Errorf("keeping what was fetched: %w", err)
	}
	return nil
}

// unknownType is what is said of contents that nobody knows.
const unknownType = "application/octet-stream"

// mediaType is the type of a content: an image's, or unknownType. A host that
// says anything else has sent an error page, or is not for us.
func mediaType(said string, begin []byte) (string, error) {
	kind, _, err := mime.ParseMediaType(said)
	switch {
	case err == nil && strings.HasPrefix(kind, "image/"):
		return kind, nil
	case said != "" && (err != nil || kind != unknownType && kind != "binary/octet-stream"):
		return "", fmt.Errorf("%w: its type is %.60q", errType, said)
	}
	if kind := http.DetectContentType(begin); strings.HasPrefix(kind, "image/") {
		return kind, nil
	}
	return unknownType, nil
}

// freshness is how long an answer is used (RFC 9111, 4.2). What may not be kept
// by shared caches is kept by us, who serve it for its host, but for as little
// as possible.
func (s *Source) freshness(h http.Header, now time.Time) time.Duration {
	lines := h["Cache-Control"]
	if slices.ContainsFunc(lines, func(line string) bool { return !field.Closed(line) }) {
		return leastFresh // the quoted string without an end may hide a no-store
	}
	life, said := time.Duration(0), false
	for directive := range field.QuotedMembers(lines) {
		name, value, _ := strings.Cut(directive, "=")
		switch name = strings.ToLower(name); name {
		case "no-store", "no-cache", "private":
			return leastFresh
		case "s-maxage", "max-age":
			value, _ = field.Unquote(value)
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				n = 0 // RFC 9111, 4.2.1: what cannot be read is stale
				if errors.Is(err, strconv.ErrRange) {
					n = 1 << 31
				}
			}
			if name == "s-maxage" || !said {
				life, said = time.Duration(n)*time.Second, true
			}
		}
	}
	if !said {
		if _, ok := h["Expires"]; !ok {
			return s.o.Fresh
		}
		at, ok := condition.ParseDate(h.Get("Expires"), now)
		if !ok {
			return leastFresh
		}
		date, ok := condition.ParseDate(h.Get("Date"), now)
		if !ok {
			date = now
		}
		life = at.Sub(date)
	}
	if age, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil {
		life -= time.Duration(age) * time.Second
	}
	return min(max(life, leastFresh), mostFresh)
}
