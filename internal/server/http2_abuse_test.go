package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// enoughAbuse is more frames than any limit lets pass.
const enoughAbuse = 2_000_000

// abuses are what a hostile client sends, over and over.
func abuses() map[string]func(fr *http2.Framer, i uint32) error {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a.example"}, {":path", "/slow"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	head := block.Bytes() // its first use fills the table; literals repeated are as valid
	open := func(fr *http2.Framer, id uint32) error {
		return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndStream: true, EndHeaders: true})
	}
	return map[string]func(fr *http2.Framer, i uint32) error{
		"rapid reset": func(fr *http2.Framer, i uint32) error {
			return errors.Join(open(fr, 2*i+1), fr.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		},
		"resets that the server is made to send": func(fr *http2.Framer, i uint32) error {
			return errors.Join(open(fr, 2*i+1), fr.WriteRawFrame(http2.FrameWindowUpdate, 0, 2*i+1, make([]byte, 4)))
		},
		"CONTINUATION": func(fr *http2.Framer, i uint32) error {
			if i == 0 {
				return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head})
			}
			return fr.WriteContinuation(1, false, nil)
		},
		"PING":     func(fr *http2.Framer, _ uint32) error { return fr.WritePing(false, [8]byte{}) },
		"SETTINGS": func(fr *http2.Framer, _ uint32) error { return fr.WriteSettings() },
		"PRIORITY": func(fr *http2.Framer, _ uint32) error {
			return fr.WritePriority(1, http2.PriorityParam{StreamDep: 3})
		},
		"WINDOW_UPDATE": func(fr *http2.Framer, _ uint32) error { return fr.WriteWindowUpdate(0, 1) },
	}
}

// Each client is told ENHANCE_YOUR_CALM, or is cut off, before it has sent
// enoughAbuse frames. Another connection goes on being answered.
func TestHTTP2Abuse(t *testing.T) {
	r := start(t, plan{})
	for name, send := range abuses() {
		t.Run(name, func(t *testing.T) {
			abuse(t, r, send)
			c := r.dial(t, "tls")
			c.get("/slow")
			_ = c.Close()
		})
	}
}

func abuse(t *testing.T, r *rig, send func(fr *http2.Framer, i uint32) error) {
	t.Helper()
	config := r.clientTLS.Clone()
	config.NextProtos = []string{"h2"}
	nc, err := tls.Dial("tcp", r.secure, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }() // the server has ended it
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := nc.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	fr := http2.NewFramer(nc, nc)
	fr.AllowIllegalWrites = true
	if err := fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	told := make(chan http2.ErrCode, 1)
	go func() { // ends with the connection
		why := http2.ErrCodeNo
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				told <- why
				return
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				why = g.ErrCode
			}
		}
	}()
	sent := uint32(0)
	for ; sent < enoughAbuse && err == nil; sent++ {
		err = send(fr, sent)
	}
	if err == nil {
		t.Fatalf("%d times, and the connection is still open", sent)
	}
	why := <-told // a reset may overtake it
	t.Logf("cut after %d: %v", sent, why)
	if why != http2.ErrCodeEnhanceYourCalm && why != http2.ErrCodeNo {
		t.Errorf("the client is told %v", why)
	}
}
