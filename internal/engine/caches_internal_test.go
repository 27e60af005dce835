package engine

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"millrace/cache"
)

// TestRelay: what comes before the cache is there waits for it, and what comes
// after it was closed is dropped.
func TestRelay(t *testing.T) {
	answer := roundTripper(func(r *http.Request) (*http.Response, error) { return nil, errors.New("nobody is asked") })
	synctest.Test(t, func(t *testing.T) {
		o := cache.Options{Memory: 1 << 20}
		o.To = []string{"http://upstream.invalid"}
		h, err := cache.New(o, cache.Deps{Transport: answer})
		if err != nil {
			t.Fatal(err)
		}
		l := &relay{ready: make(chan struct{})}
		told := make(chan bool)
		go func() {
			l.deliver(func(got *cache.Handler) { told <- got == h })
			close(told)
		}()
		synctest.Wait()
		select {
		case <-told:
			t.Error("something was told before there was a cache")
		default:
		}
		l.connect(h, nil)
		if !<-told {
			t.Error("another cache was told")
		}
		<-told // closed
		l.began("run")
		l.message(nil, true)
		l.cut()
		l.deliver(func(*cache.Handler) { t.Error("a cache that was closed is told something") })
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		failed := &relay{ready: make(chan struct{})}
		failed.connect(nil, io.ErrUnexpectedEOF)
		failed.deliver(func(*cache.Handler) { t.Error("a cache that was never opened is told something") })
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
