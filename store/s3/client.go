package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// A client sends the four requests of S3 that a store needs. minio-go would
// repeat them by itself, but without learning a region that differs from the
// one that it was told, and also when there is no server.
type client struct {
	to    target
	http  http.RoundTripper
	keys  *credentials.Credentials
	where atomic.Pointer[regional]
}

// regional is the library's client for one region.
type regional struct {
	*minio.Core
	region string
}

// attempts is how often the client tries a request. A second time is for
// connections that the server has closed while they were idle, for servers that
// ask to slow down and for a region that was just learned; more would only use
// up the caller's time.
const attempts = 2

// mostListing bounds what is read of a page of names with at most 1024 bytes
// each, escaped. The library itself bounds errors.
const mostListing = 4 << 20

// newClient makes a client that sends its requests through a transport.
func newClient(to target, tr http.RoundTripper) (*client, error) {
	c := &client{to: to, http: &limits{RoundTripper: tr}}
	var err error
	if c.keys, err = to.credentials(); err != nil {
		return nil, err
	}
	region := to.region
	if region == "" {
		region = s3utils.GetRegionFromURL(url.URL{Host: to.host})
	}
	if region == "" {
		region = "us-east-1" // most servers are in this one, or say which it is
	}
	return c, c.use(region)
}

// use has requests be for a region from now on.
func (c *client) use(region string) error {
	core, err := minio.NewCore(c.to.host, &minio.Options{
		Creds:      c.keys,
		Secure:     c.to.secure,
		Region:     region,
		Transport:  c.http,
		MaxRetries: 1, // of attempts
	})
	if err != nil {
		return errors.New("s3 URL: the host cannot be used; write s3://host/bucket or s3://host:port/bucket")
	}
	core.SetS3EnableDualstack(strings.Contains(c.to.host, ".dualstack.")) // Amazon's host as the URL has it
	c.where.Store(&regional{core, region})
	return nil
}

// try makes a request, a second time where that may help. After an error that
// may pass, the library has waited for up to 200 ms.
func (c *client) try(ctx context.Context, request func(*minio.Core) error) error {
	for n := 1; ; n++ {
		at := c.where.Load()
		err := request(at.Core)
		if err == nil || n == attempts || ctx.Err() != nil {
			return err
		}
		answer, answered := errors.AsType[minio.ErrorResponse](err)
		switch {
		case !answered: // the connection
			if unreachable(err) {
				return err
			}
		case answer.Region != "" && answer.Region != at.region && validRegion(answer.Region):
			if err := c.use(answer.Region); err != nil {
				return err
			}
		case expired(answer.Code):
			c.keys.Expire() // there may be new ones already
		case answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests || answer.Code == "RequestTimeout":
		default:
			return err
		}
	}
}

// get asks for an object, or its first n bytes if n is not 0. The body has size
// bytes and is to be closed.
func (c *client) get(ctx context.Context, name string, n int64) (body io.ReadCloser, size int64, err error) {
	var o minio.GetObjectOptions
	if n > 0 {
		if err := o.SetRange(0, n-1); err != nil {
			return nil, 0, err
		}
	}
	err = c.try(ctx, func(api *minio.Core) (err error) {
		var info minio.ObjectInfo
		body, info, _, err = api.GetObject(ctx, c.to.bucket, name, o)
		size = info.Size
		return err
	})
	if err == nil && size < 0 {
		_ = body.Close() // there is another error already
		return nil, 0, errors.New("the answer has no length")
	}
	return body, size, err
}

// put stores an object of size bytes, in one piece: parts would be left behind
// by a process that ends, and not every server knows sums at the end of a body.
// When it returns nobody reads from any more.
func (c *client) put(ctx context.Context, name string, from io.ReaderAt, size int64) error {
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true}
	sum := "" // TLS protects the body
	if !c.to.secure {
		sum = sumOf(io.NewSectionReader(from, 0, size))
	}
	return c.try(ctx, func(api *minio.Core) error {
		body := &sent{from: io.NewSectionReader(from, 0, size)}
		defer body.end()
		_, err := api.PutObject(ctx, c.to.bucket, name, body, size, "", sum, o)
		return err
	})
}

// sumOf is the SHA-256 of a body, "" if it cannot be read, which sending it will
// tell.
func sumOf(r io.Reader) string {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sent is a body that is being sent. net/http may go on reading it after the
// answer came.
type sent struct {
	mu    sync.Mutex
	from  io.Reader
	ended bool
}

// Read implements io.Reader.
func (s *sent) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, errEarly
	}
	return s.from.Read(p)
}

// end waits for a Read and lets no other begin.
func (s *sent) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

var errEarly = errors.New("the server has answered before it had all of the body")

func (c *client) remove(ctx context.Context, name string) error {
	return c.try(ctx, func(api *minio.Core) error {
		return api.RemoveObject(ctx, c.to.bucket, name, minio.RemoveObjectOptions{})
	})
}

// list returns at most so many objects, in the order of their names, that are
// below the prefix and come after a name.
func (c *client) list(ctx context.Context, after string, most int) (names []*found, err error) {
	owner := false
	o := minio.ListObjectsOptions{Prefix: c.to.prefix, Recursive: true, StartAfter: after, MaxKeys: most, FetchOwner: &owner}
	err = c.try(ctx, func(api *minio.Core) error {
		names = names[:0]
		for object := range api.ListObjectsIter(ctx, c.to.bucket, o) {
			if object.Err != nil {
				return object.Err
			}
			if object.Key > after { // some servers ignore start-after
				names = append(names, &found{name: object.Key, size: object.Size})
			}
			if len(names) == most {
				break
			}
		}
		return ctx.Err() // the iterator ends without an error then
	})
	return names, err
}

// validRegion reports whether a region may become part of a host name.
func validRegion(s string) bool {
	return len(s) <= 63 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// limits bounds what the library reads, and says what it would say with the
// whole address.
type limits struct {
	http.RoundTripper
	answered atomic.Bool // once: it is a server that speaks HTTP
}

// RoundTrip implements http.RoundTripper.
func (l *limits) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	switch {
	case err == nil:
		l.answered.Store(true)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		if !l.answered.Load() {
			return nil, errNoS3
		}
		return nil, errNoAnswer
	}
	if err == nil && resp.StatusCode < http.StatusInternalServerError && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		resp.Body.Close()
		return nil, fmt.Errorf("%w (status %d)", errPages, resp.StatusCode)
	}
	if err == nil && r.URL.Query().Has("list-type") {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, mostListing), resp.Body}
	}
	return resp, err
}

var (
	errNoAnswer = errors.New("the server has closed the connection without an answer")
	errNoS3     = fmt.Errorf("%w: is it an S3 server? if it speaks TLS, write s3://", errNoAnswer)
	errPages    = errors.New("what is there answers with a web page: it is no S3 server, or one behind something that answers for it")
)
