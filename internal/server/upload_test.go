package server

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// stream is a ResponseWriter as HTTP/2 has it: whose deadlines must not be set
// once the request is answered.
type stream struct {
	http.ResponseWriter
	answered, late bool
}

func (s *stream) SetReadDeadline(time.Time) error {
	s.late = s.late || s.answered
	return nil
}

// An upload that is late when its request has just been answered is left alone:
// net/http's stream is gone then.
func TestLateAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, _ := io.Pipe()
		s := &stream{}
		r := &http.Request{ProtoMajor: 2, Body: from}
		limited, done := upload(&writer{rw: s}, r, &Options{BodyTimeout: time.Second, BodyBytes: 10})
		go func() { _, _ = limited.Body.Read(make([]byte, 1)) }() // for longer than the request lasts
		synctest.Wait()
		done()
		s.answered = true
		limited.Body.(*body).late.Reset(0) // it was under way
		time.Sleep(2 * time.Second)
		_ = from.Close()
		synctest.Wait()
		if s.late {
			t.Error("a deadline was set for a stream that is gone")
		}
	})
}

// slowStream is a stream whose deadline takes a while to be set, and ends the body.
type slowStream struct {
	*httptest.ResponseRecorder
	body    *io.PipeReader
	gone    <-chan struct{} // the request is answered
	set     chan struct{}
	tooSoon bool
}

func (s *slowStream) SetReadDeadline(time.Time) error {
	defer close(s.set)
	_ = s.body.CloseWithError(os.ErrDeadlineExceeded)
	select {
	case <-s.gone:
		s.tooSoon = true
	case <-time.After(20 * time.Millisecond):
	}
	return nil
}

// So is one of which nothing has come by then: nobody is at the stream any more when
// net/http takes it back.
func TestNothingComesOfAnUpload(t *testing.T) {
	srv := start(t, plan{limits: Options{BodyTimeout: time.Millisecond}}).srv
	from, _ := io.Pipe()
	gone := make(chan struct{})
	s := &slowStream{ResponseRecorder: httptest.NewRecorder(), body: from, gone: gone, set: make(chan struct{})}
	r := httptest.NewRequest(http.MethodGet, "https://localhost/", from)
	r.Proto, r.ProtoMajor, r.ProtoMinor, r.RequestURI = "HTTP/2.0", 2, 0, "/"
	func() {
		defer close(gone)
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Error(err)
			}
		}()
		srv.ServeHTTP(s, r)
	}()
	if <-s.set; s.tooSoon {
		t.Error("the deadline of a stream was being set that is gone")
	}
}
