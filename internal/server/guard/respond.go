package guard

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"millrace/internal/lane"
	"millrace/internal/wire/send"
)

// maxRespond bounds a file that is answered with: it is kept in memory. Larger
// ones are for static.
const maxRespond = 1 << 20

// Respond answers by itself. A text alone may stand for it.
type Respond struct {
	// Status is from 200 to 599. Default 200.
	Status int `yaml:"status"`
	// Text is the answer's body.
	Text string `yaml:"text"`
	// File has the answer's body, up to 1 MiB. It is read at the start and by
	// a reload.
	File string `yaml:"file"`
	// Type is the Content-Type. Default: that of the file's name, or text/plain.
	Type string `yaml:"type"`
	// RetryAfter is the Retry-After, in seconds.
	RetryAfter int `yaml:"retry_after"`
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Respond) UnmarshalText(text []byte) error {
	o.Text = string(text)
	return nil
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Respond) Check() map[string]error {
	faults := map[string]error{}
	if o.Status != 0 && (o.Status < 200 || o.Status > 599) {
		faults["status"] = fmt.Errorf("%d is not the status of an answer: 200 to 599", o.Status)
	}
	if o.Status >= 300 && o.Status < 400 && o.Status != http.StatusNotModified {
		faults["status"] = fmt.Errorf("%d is a redirect: write \"redirect: {to: /new, status: %d}\"", o.Status, o.Status)
	}
	if o.File != "" {
		if o.Text != "" {
			faults["file"] = errors.New("text and file exclude each other")
		} else if _, err := o.body(); err != nil {
			faults["file"] = err
		}
	}
	if strings.ContainsFunc(o.Type, func(c rune) bool { return c < ' ' || c > '~' }) {
		faults["type"] = fmt.Errorf("%q cannot stand in a header", o.Type)
	}
	return faults
}

func (o Respond) body() ([]byte, error) {
	if o.File == "" {
		return []byte(o.Text), nil
	}
	f, err := os.Open(o.File)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxRespond+1))
	if err == nil && len(body) > maxRespond {
		err = fmt.Errorf("%s is larger than 1 MiB: serve it with static", o.File)
	}
	return body, err //nolint:wrapcheck // as above
}

// Handler returns what answers.
func (o Respond) Handler() (http.Handler, error) {
	body, err := o.body()
	if err != nil {
		return nil, err
	}
	kind := o.Type
	if kind == "" {
		kind = mime.TypeByExtension(filepath.Ext(o.File))
	}
	kind = cmp.Or(kind, "text/plain; charset=utf-8")
	status := cmp.Or(o.Status, http.StatusOK)
	a := &send.Answer{Status: status, Body: body, Size: int64(len(body)), Header: http.Header{
		"Content-Type":           {kind},
		"Content-Length":         {strconv.Itoa(len(body))},
		"X-Content-Type-Options": {"nosniff"},
	}}
	if len(body) == 0 {
		delete(a.Header, "Content-Type")
	}
	if o.RetryAfter > 0 {
		a.Header["Retry-After"] = []string{strconv.Itoa(o.RetryAfter)}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lane.Offer(r, a, lane.Rule{}) // declines what it cannot send
		send.Serve(w, r, a)
	}), nil
}
