package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A client speaks the four requests of S3 that a store needs. A library for all
// of S3 makes the program more than a MB larger (decision 42).
type client struct {
	http  http.RoundTripper
	to    target
	learn atomic.Pointer[string] // the region that the server has told; nil: none
}

// attempts is how often the client tries a request. A second time is for
// connections that the server has closed while they were idle, for servers that
// ask to slow down and for a region that was just learned; more would only use
// up the caller's time.
const attempts = 2

// againAfter is about how long the client waits before the second time when the
// server has answered that it cannot.
const againAfter = 100 * time.Millisecond

// Bounds of what is read of answers that are not objects.
const (
	mostError   = 64 << 10
	mostListing = 4 << 20 // of a page of names with at most 1024 bytes each, escaped
)

// answerError is an error that the server has answered with. Code and region may
// hold anything.
type answerError struct {
	status int
	code   string
	region string // where the bucket is
}

// Error implements error.
func (e *answerError) Error() string { return fmt.Sprintf("%s (status %d)", code(e), e.status) }

// The codes that the store knows.
const (
	noSuchKey          = "NoSuchKey"
	noSuchBucket       = "NoSuchBucket"
	accessDenied       = "AccessDenied"
	badSignature       = "SignatureDoesNotMatch"
	badKey             = "InvalidAccessKeyId"
	authorizationError = "AuthorizationHeaderMalformed"
)

// A request is one of S3's, which may be sent twice.
type request struct {
	method string
	name   string // of the object; "": the bucket
	query  url.Values
	span   int64                // how many bytes of the object are wanted; 0: all
	body   func() io.ReadCloser // from the beginning; nil: none
	size   int64                // of the body
	sum    func() (hex string)  // SHA-256 of the body, asked for where TLS does not protect it
}

// get asks for an object, or its first n bytes if n is not 0. The body has size
// bytes and is to be closed.
func (c *client) get(ctx context.Context, name string, n int64) (body io.ReadCloser, size int64, err error) {
	resp, err := c.do(ctx, &request{method: http.MethodGet, name: name, span: n})
	if err != nil {
		return nil, 0, err
	}
	if resp.ContentLength < 0 {
		resp.Body.Close()
		return nil, 0, errors.New("the answer has no length")
	}
	return resp.Body, resp.ContentLength, nil
}

// put stores an object of size bytes. When it returns nobody reads from any more.
func (c *client) put(ctx context.Context, name string, from io.ReaderAt, size int64) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	whole := func() io.Reader { return io.NewSectionReader(from, 0, size) }
	return c.forget(c.do(ctx, &request{
		method: http.MethodPut, name: name, size: size,
		body: func() io.ReadCloser {
			reading.Add(1)
			return &sent{whole(), sync.OnceFunc(reading.Done)}
		},
		sum: func() string { return sumOf(whole()) },
	}))
}

// sent is a body that is being sent. net/http closes it when it has finished
// with it, which may be after the answer came.
type sent struct {
	io.Reader
	done func()
}

// Close implements io.Closer.
func (s *sent) Close() error {
	s.done()
	return nil
}

func (c *client) remove(ctx context.Context, name string) error {
	return c.forget(c.do(ctx, &request{method: http.MethodDelete, name: name}))
}

// forget drops an answer.
func (c *client) forget(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, mostError) // so that the connection is used again
	return resp.Body.Close()
}

// listed is an object in a listing.
type listed struct {
	Key  string
	Size int64
}

// listing is a part of one: ListBucketResult.
type listing struct {
	Contents     []listed
	EncodingType string
	IsTruncated  bool
	Next         string `xml:"NextContinuationToken"`
}

// list asks for names in the bucket (ListObjectsV2), in their order: those that
// begin with a prefix, behind after or what a token of an earlier part stands
// for. A server need not give as many as it is asked for.
func (c *client) list(ctx context.Context, prefix, after, token string, most int) (*listing, error) {
	query := url.Values{
		"list-type": {"2"}, "max-keys": {strconv.Itoa(most)},
		"encoding-type": {"url"}, // XML does not take every name
	}
	for key, value := range map[string]string{"prefix": prefix, "start-after": after, "continuation-token": token} {
		if value != "" {
			query.Set(key, value)
		}
	}
	resp, err := c.do(ctx, &request{method: http.MethodGet, query: query})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var l listing
	if err := xml.NewDecoder(io.LimitReader(resp.Body, mostListing)).Decode(&l); err != nil {
		return nil, fmt.Errorf("the list of objects cannot be read: %w", err)
	}
	if l.IsTruncated && l.Next == "" {
		return nil, errors.New("the list of objects has more and does not say where")
	}
	if l.EncodingType != "url" {
		return &l, nil
	}
	for i := range l.Contents {
		if l.Contents[i].Key, err = url.QueryUnescape(l.Contents[i].Key); err != nil {
			return nil, errors.New("the list of objects has a name that cannot be read")
		}
	}
	return &l, nil
}

// do sends a request and returns an answer that is no error.
func (c *client) do(ctx context.Context, r *request) (*http.Response, error) {
	for n := 1; ; n++ {
		region := c.region()
		resp, err := c.once(ctx, r, region)
		if err == nil || n == attempts || ctx.Err() != nil {
			return resp, err
		}
		answer, answered := errors.AsType[*answerError](err)
		switch {
		case !answered: // the connection
			if unreachable(err) {
				return nil, err
			}
		case answer.region != "" && answer.region != region:
			c.learn.Store(&answer.region)
		case answer.status >= 500 || answer.status == http.StatusTooManyRequests || answer.code == "RequestTimeout":
			if !sleep(ctx, againAfter/2+rand.N(againAfter)) {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// region is the one in use: what the server has told, or else the URL. Most
// servers are in this one.
func (c *client) region() string {
	if told := c.learn.Load(); told != nil {
		return *told
	}
	if c.to.region != "" {
		return c.to.region
	}
	return "us-east-1"
}

func (c *client) once(ctx context.Context, r *request, region string) (*http.Response, error) {
	req := &http.Request{Method: r.method, URL: c.to.address(region, r.name), Header: http.Header{}, ContentLength: r.size}
	req.URL.RawQuery = query(r.query)
	req.Host = req.URL.Host
	if r.span > 0 {
		req.Header.Set("Range", "bytes=0-"+strconv.FormatInt(r.span-1, 10))
	}
	sum := emptySum
	if r.body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Body = r.body()
		if sum = unsignedPayload; !c.to.secure {
			sum = r.sum()
		}
	}
	sign(req, identity{c.to.key, c.to.secret, c.to.token, region}, sum, time.Now())
	req.Header.Set("User-Agent", "millrace")
	resp, err := c.http.RoundTrip(req.WithContext(ctx)) // by itself it follows no redirect: that needs a new signature
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, refused(resp, r.name)
	}
	return resp, nil
}

// refused reads an error of S3.
func refused(resp *http.Response, name string) *answerError {
	var text struct{ Code, Region string }
	_ = xml.NewDecoder(io.LimitReader(resp.Body, mostError)).Decode(&text) // it may not be XML
	e := &answerError{resp.StatusCode, text.Code, text.Region}
	if region := resp.Header.Get("X-Amz-Bucket-Region"); region != "" {
		e.region = region
	}
	if !validRegion(e.region) {
		e.region = ""
	}
	if e.code != "" {
		return e
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		if e.code = noSuchKey; name == "" {
			e.code = noSuchBucket
		}
	case http.StatusForbidden:
		e.code = accessDenied
	}
	return e
}

// validRegion reports whether a region may become part of a host name.
func validRegion(s string) bool {
	return len(s) <= 63 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// address is the URL of an object, or of the bucket. Amazon and Alibaba want the
// bucket in the name of the host, which a certificate covers if it has no dots;
// the others have it in the path.
func (t *target) address(region, name string) *url.URL {
	u := &url.URL{Scheme: "http", Host: t.host, Path: "/" + t.bucket + "/" + name}
	if t.secure {
		u.Scheme = "https"
	}
	if name == "" {
		u.Path = "/" + t.bucket + "/"
	}
	amazon := strings.HasSuffix(t.host, ".amazonaws.com") || strings.HasSuffix(t.host, ".amazonaws.com.cn")
	if t.host == "s3.amazonaws.com" && region != "us-east-1" {
		u.Host = "s3." + region + ".amazonaws.com"
	}
	if (amazon || strings.HasSuffix(t.host, ".aliyuncs.com")) && (!t.secure || !strings.Contains(t.bucket, ".")) {
		u.Host, u.Path = t.bucket+"."+u.Host, "/"+name
	}
	u.RawPath = escape(u.Path, true)
	return u
}
