// Package images is what of the experiment images is code: photographs that are
// converted by commands and by servers, a crowd that asks at once, and conversions
// in a row.
package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

const (
	// commandTimeout is how long a command, or a visitor, may take: ten seconds longer
	// than the most that millrace's images.wait takes.
	commandTimeout = 40 * time.Second
	// settle is how long a server rests before and after its work: what a start
	// still has to do is not part of it, what an answer leaves to do is.
	settle = 300 * time.Millisecond
	// idle is how long a server rests until its workers, which end after 3 s without
	// work, are gone.
	idle = 4 * time.Second
	// look is how often memory is read.
	look = 50 * time.Millisecond
	// asked is how often an image is asked for until it is answered as it will be
	// from then on.
	asked = 3
	// maxBody is more than any image of a run has.
	maxBody = 64 << 20
	// statusHeader is where millrace says what it sent.
	statusHeader = "Millrace-Image"
	millrace     = "millrace"
)

// measurement is one run of the experiment.
type measurement struct {
	*experiment.Run
	photos      []photograph      // in the folder of the site
	crops       []string          // names in the site, of images that change
	burstImages []string          // likewise, of images that are asked for at once
	changes     int               // of the crops
	ready       map[string][]byte // what is answered, by path
	samples     map[sample]string // the file of each distinct WebP
}

// sample is one WebP of a photograph.
type sample struct{ arm, photo, hash string }

// Hooks are those of the experiment.
func Hooks(r *experiment.Run) experiment.Hooks {
	m := &measurement{Run: r, ready: map[string][]byte{}, samples: map[sample]string{}}
	h := experiment.Hooks{
		Prepare: m.prepare,
		Tasks:   map[string]experiment.Task{"folder": m.folder, "crowd": m.burst, "row": m.row},
		Start:   map[string]func(context.Context) (*trial.Instance, error){millrace: m.readied},
		Report:  func() { m.Res.Tables = append(m.Res.Tables, m.photoTable()) },
	}
	if !r.Quick {
		h.After = m.quality
	}
	return h
}

// prepare makes the site, and the files that nginx serves: what millrace answers.
func (m *measurement) prepare(ctx context.Context) error {
	m.Fields["Answers"] = filepath.Join(m.Env.Work, "answers")
	if err := m.writePhotos(); err != nil {
		return err
	}
	if err := os.MkdirAll(m.Fields["Answers"], 0o755); err != nil {
		return fmt.Errorf("making a folder for nginx: %w", err)
	}
	in, err := m.readied(ctx)
	if errors.Is(err, experiment.ErrNoMillrace) || errors.As(err, new(subject.Missing)) {
		return nil // it says so itself
	}
	if err != nil {
		return err
	}
	for name, body := range m.ready {
		err = errors.Join(err, writeOld(filepath.Join(m.Fields["Answers"], name), body))
	}
	return errors.Join(err, in.Stop())
}

// readied starts millrace and has it convert what is served ready.
func (m *measurement) readied(ctx context.Context) (*trial.Instance, error) {
	in, err := m.Start(ctx, millrace)
	if err != nil {
		return nil, err
	}
	if err := m.askReady(ctx, in.URL[""]); err != nil {
		return nil, errors.Join(err, in.Stop())
	}
	return in, nil
}

// errBytes is why what is ready cannot be compared.
var errBytes = errors.New("it is sent with other bytes than before")

// askReady asks for what is served ready. The bytes are the same each time.
func (m *measurement) askReady(ctx context.Context, url string) error {
	client := newClient()
	defer client.CloseIdleConnections()
	for _, r := range readyPhotos() {
		for range asked {
			got, err := ask(ctx, client, url+r.path()[1:])
			if err != nil {
				return err
			}
			if !got.webp {
				return fmt.Errorf("%s is sent as the original: %s", r.path(), got.why)
			}
			if was, known := m.ready[r.path()]; known && !bytes.Equal(was, got.body) {
				return fmt.Errorf("%s: %w", r.path(), errBytes)
			}
			m.ready[r.path()] = got.body
		}
	}
	return nil
}

// answered is what a client gets.
type answered struct {
	webp bool
	why  string // it is not
	body []byte
}

// newClient is a client with connections of its own.
func newClient() *http.Client {
	return &http.Client{Timeout: commandTimeout, Transport: &http.Transport{}}
}

// ask asks for an image as a browser that takes WebP.
func ask(ctx context.Context, client *http.Client, url string) (a answered, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, fmt.Errorf("asking for a picture: %w", err)
	}
	req.Header.Set("Accept", "image/webp")
	resp, err := client.Do(req)
	if err != nil {
		return a, fmt.Errorf("asking for a picture: %w", err)
	}
	defer resp.Body.Close()
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody)); err != nil {
		return a, fmt.Errorf("reading %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s answers %s: %.200s", url, resp.Status, a.body)
	}
	a.webp, a.why = resp.Header.Get("Content-Type") == "image/webp", resp.Header.Get(statusHeader)
	return a, nil
}

// conversions is millrace's own count.
type conversions struct {
	Running   int    `json:"running"`
	Waiting   int    `json:"waiting"`
	Converted uint64 `json:"converted"`
	Failed    uint64 `json:"failed"`
	Shed      uint64 `json:"shed"`
}

// count asks millrace's admin socket for the conversions of all routes.
func count(ctx context.Context, socket string) (sum conversions, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("asking how many pictures are converted: %w", err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/images/", nil)
	if err != nil {
		return sum, err
	}
	resp, err := experiment.Admin(socket, commandTimeout).Do(req)
	if err != nil {
		return sum, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return sum, errors.New("it answers " + resp.Status)
	}
	var routes map[string]conversions
	err = json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&routes)
	for _, r := range routes {
		sum.Running += r.Running
		sum.Waiting += r.Waiting
		sum.Converted += r.Converted
		sum.Failed += r.Failed
		sum.Shed += r.Shed
	}
	return sum, err
}

// fail counts failures, and keeps why the first of them was one.
func fail(got *trial.TaskResult, why string) {
	if got.Failed == 0 {
		got.FirstFailure = why
	}
	got.Failed++
}
