package server

import (
	"io"
	"net/http"
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
