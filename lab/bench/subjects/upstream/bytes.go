package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/valyala/fasthttp"
)

const (
	// buffered is how large an answer may be that is held in memory.
	buffered = 64 << 10
	// largest is the most that is answered with.
	largest = 1 << 30
	// pieceSize is what is written at once of a larger one.
	pieceSize = 256 << 10
	// maxBody is the most that a POST may carry.
	maxBody = 16 << 20
)

// bytesMain is the application behind the proxies of the experiment proxy: over
// fasthttp, so that it takes as little of the machine as it can.
//
// GET /N, and any path that ends in /N, is answered with N bytes; below /cached/ with a
// Cache-Control that allows a minute. A POST is answered with the number of bytes that
// have come, in 8 digits.
func bytesMain(args []string) error {
	flags := flag.NewFlagSet("upstream bytes", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "the TCP `address`")
	_ = flags.Parse(args) // it exits
	return bytesServer().ListenAndServe(*listen)
}

func bytesServer() *fasthttp.Server {
	b := &bytesOf{piece: bytes.Repeat([]byte("0123456789abcdef"), pieceSize/16)}
	return &fasthttp.Server{
		Handler: b.answer, MaxRequestBodySize: maxBody, NoDefaultServerHeader: true,
		ReadBufferSize: 8 << 10, WriteBufferSize: 8 << 10,
	}
}

// bytesOf answers.
type bytesOf struct {
	piece []byte // repeats itself every 16 bytes
}

func (b *bytesOf) answer(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/octet-stream")
	if ctx.IsPost() {
		ctx.SetBodyString(fmt.Sprintf("%08d", len(ctx.PostBody())))
		return
	}
	path := ctx.Path()
	n, err := strconv.Atoi(string(path[bytes.LastIndexByte(path, '/')+1:]))
	switch {
	case err != nil || n < 0 || n > largest:
		ctx.Error("not found", fasthttp.StatusNotFound)
		return
	case n <= buffered:
		ctx.SetBody(b.piece[:n])
	default:
		ctx.SetBodyStream(&stream{piece: b.piece, left: n}, n)
	}
	if bytes.HasPrefix(path, []byte("/cached/")) {
		ctx.Response.Header.Set("Cache-Control", "max-age=60")
	}
}

// A stream is a body that is written in large pieces.
type stream struct {
	piece []byte
	left  int
}

// Read implements io.Reader. fasthttp calls WriteTo.
func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), s.left, len(s.piece)) &^ 15
	if n == 0 {
		n = min(len(p), s.left)
	}
	n = copy(p, s.piece[:n])
	s.left -= n
	return n, nil
}

// WriteTo implements io.WriterTo.
func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
	for s.left > 0 && err == nil {
		var n int
		n, err = w.Write(s.piece[:min(s.left, len(s.piece))])
		written += int64(n)
		s.left -= n
	}
	return written, err
}
