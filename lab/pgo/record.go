package pgo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxRecording is the longest profile that is asked for: what millrace's
	// admin listener allows at once.
	MaxRecording = 5 * time.Minute
	// DefaultRecording is long enough for 3,000 samples of a busy core.
	DefaultRecording = 30 * time.Second

	profilePath = "/debug/pprof/profile"
	// answerTime is how much longer than the recording an answer may take.
	answerTime = 15 * time.Second
	// progressEvery is how often whoever watches hears of it.
	progressEvery = 250 * time.Millisecond
	// maxComplaint is how much of a server's refusal is quoted.
	maxComplaint = 300
)

var (
	// ErrBusy is a server that takes a CPU profile already; the Go runtime takes
	// one at a time.
	ErrBusy = errors.New("a CPU profile is being taken there already")
	// ErrNoProfiles is a server without net/http/pprof at the address.
	ErrNoProfiles = errors.New("no profiles are offered there")
)

// A Recording is a CPU profile to be taken of a running server.
type Recording struct {
	// Target is where its net/http/pprof is: "unix:/path", "host:port", or a
	// URL. A URL with a path is asked as it is, with ?seconds added.
	Target string
	// Duration is how long; 0: DefaultRecording, at most MaxRecording. Whole
	// seconds: the rest is rounded up.
	Duration time.Duration
	// Progress is called now and then from another goroutine, which has ended
	// when the recording is over. May be nil.
	Progress func(done, total time.Duration)
}

// seconds is the duration in the whole seconds that net/http/pprof takes.
func (r Recording) seconds() (int, error) {
	d := cmp.Or(r.Duration, DefaultRecording)
	if d < 0 || d > MaxRecording {
		return 0, fmt.Errorf("recording a profile for %v: it must be between 1s and %v", d, MaxRecording)
	}
	return int((d + time.Second - 1) / time.Second), nil
}

// Record takes a profile over HTTP and returns it as the server sent it. What
// comes is checked: errors wrap [ErrBusy], [ErrNoProfiles], [ErrNotCPU] or
// [ErrEmpty] where that is the reason. When ctx ends there is no profile: the
// server sends it in the end.
func Record(ctx context.Context, r Recording) ([]byte, error) {
	seconds, err := r.seconds()
	if err != nil {
		return nil, err
	}
	address, client, err := dial(r.Target)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	took := time.Duration(seconds) * time.Second
	ctx, cancel := context.WithTimeout(ctx, took+answerTime)
	defer cancel()
	q := address.Query()
	q.Set("seconds", strconv.Itoa(seconds))
	address.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("recording a profile of %s: %w", r.Target, err)
	}
	defer watch(took, r.Progress)()
	resp, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the URL is in our own words already
		}
		return nil, fmt.Errorf("recording a profile of %s: %w", r.Target, err)
	}
	defer resp.Body.Close()
	data, err := readAtMost(resp.Body, maxFile)
	if err != nil {
		return nil, fmt.Errorf("recording a profile of %s: %w", r.Target, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("recording a profile of %s: %w", r.Target, refusal(resp.StatusCode, data))
	}
	_, err = Parse("the profile of "+r.Target, bytes.NewReader(data))
	return data, err
}

// refusal says why a server gave no profile.
func refusal(status int, body []byte) error {
	text := strings.Join(strings.Fields(string(body[:min(len(body), maxComplaint)])), " ")
	switch {
	case strings.Contains(text, "already in use"): // runtime/pprof's words
		return ErrBusy
	case status == http.StatusNotFound:
		return fmt.Errorf("%w (404 for %s)", ErrNoProfiles, profilePath)
	}
	return fmt.Errorf("it answered %d: %s", status, text)
}

// dial understands a target.
func dial(target string) (*url.URL, *http.Client, error) {
	transport := &http.Transport{DisableCompression: true}
	client := &http.Client{Transport: transport}
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return &url.URL{Scheme: "http", Host: "localhost", Path: profilePath}, client, nil
	}
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	u, err := url.Parse(target)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, nil, fmt.Errorf("%q is not an address: use host:port, unix:/path or http://host:port", target)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = profilePath
	}
	return u, client, nil
}

// watch reports how far a recording is until the function it returns is called.
func watch(total time.Duration, progress func(done, total time.Duration)) (stop func()) {
	if progress == nil {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	start := time.Now()
	go func() { // ends with stop, which waits for it
		defer close(ended)
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		for {
			progress(min(time.Since(start), total), total)
			select {
			case <-t.C:
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// copyProfile reads a finished profile and checks it.
func copyProfile(name string, r io.Reader) ([]byte, error) {
	data, err := readAtMost(r, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	_, err = Parse(name, bytes.NewReader(data))
	return data, err
}
