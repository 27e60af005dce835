package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"millrace/internal/observe/meter"
)

// asked is a transport that notes addresses and reaches nothing.
type asked struct{ url string }

// RoundTrip implements http.RoundTripper.
func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	a.url = r.URL.String()
	return nil, &net.OpError{Op: "dial", Err: errors.New("nothing is reached")}
}

// TestAddress: Amazon and Alibaba want the bucket in the name of the host, which a
// certificate covers if it has no dots; the others have it in the path.
func TestAddress(t *testing.T) {
	for _, c := range []struct{ store, name, want string }{
		{"s3://k:s@host:9000/bucket", "x", "https://host:9000/bucket/x"},
		{"s3+http://k:s@host/bucket", "a b/ü+&", "http://host/bucket/a%20b/%C3%BC%2B%26"},
		{"s3://k:s@s3.amazonaws.com/bucket", "x", "https://bucket.s3.us-east-1.amazonaws.com/x"},
		{"s3://k:s@s3.amazonaws.com/bucket?region=eu-west-3", "x", "https://bucket.s3.eu-west-3.amazonaws.com/x"},
		{"s3://k:s@s3.eu-west-1.amazonaws.com/my.bucket", "x", "https://s3.eu-west-1.amazonaws.com/my.bucket/x"},
		{"s3://k:s@s3.dualstack.eu-west-1.amazonaws.com/bucket", "x", "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/x"},
		{"s3://k:s@oss-eu.aliyuncs.com/bucket", "x", "https://bucket.oss-eu.aliyuncs.com/x"},
	} {
		to, err := parseURL(c.store)
		if err != nil {
			t.Fatal(err)
		}
		var a asked
		made, err := newClient(to, &a)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := made.get(t.Context(), c.name, 0); !unreachable(err) || a.url != c.want {
			t.Errorf("%s %s: %s, not %s (%v)", c.store, c.name, a.url, c.want, err)
		}
	}
}

func TestValidBucket(t *testing.T) {
	for name, want := range map[string]bool{
		"abc": true, "Old_Bucket:1": true, "a.b-c.d": true, strings.Repeat("a", 63): true,
		"ab": false, "192.0.2.7": false, "a..b": false, "a.-b": false, "a-.b": false, "-abc": false, "abc.": false, "a%bc": false, strings.Repeat("a", 64): false,
	} {
		if _, err := parseURL("s3://h/" + url.PathEscape(name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// against makes a client of a server that answers by a function.
func against(t *testing.T, answer http.HandlerFunc) *client {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	to, err := parseURL("s3+http://k:s@" + s.Listener.Addr().String() + "/bucket")
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	c, err := newClient(to, tr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRegion: a region that the server tells is used from then on.
func TestRegion(t *testing.T) {
	var regions []string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		region := strings.Split(r.Header.Get("Authorization"), "/")[2]
		regions = append(regions, region)
		if region != "mars-1" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>AuthorizationHeaderMalformed</Code><Region>mars-1</Region></Error>`)
		}
	})
	for range 2 {
		if err := c.put(t.Context(), "x", strings.NewReader("body"), 4); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"us-east-1", "mars-1", "mars-1"}; !slices.Equal(regions, want) {
		t.Errorf("%v, not %v", regions, want)
	}
}

// TestAgain: the second time has the whole body again; there is no third.
func TestAgain(t *testing.T) {
	sent, fails := 0, 1
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if sent++; sent <= fails {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "<Error><Code>SlowDown</Code></Error>")
		} else if string(body) != "body" || r.Header.Get("X-Amz-Content-Sha256") != sumOf(strings.NewReader("body")) {
			t.Errorf("body %q, sum %s", body, r.Header.Get("X-Amz-Content-Sha256"))
		}
	})
	if err := c.put(t.Context(), "x", strings.NewReader("body"), 4); err != nil || sent != 2 {
		t.Errorf("asked %d times: %v", sent, err)
	}
	sent, fails = 0, 9
	err := c.put(t.Context(), "x", strings.NewReader("body"), 4)
	if answer, ok := errors.AsType[minio.ErrorResponse](err); !ok || answer.Code != "SlowDown" || answer.StatusCode != 503 || sent != attempts {
		t.Errorf("asked %d times: %v", sent, err)
	}
}

// TestEarlyAnswer: when put returns, nobody reads the body any more, even if the
// server did not wait for its end.
func TestEarlyAnswer(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) })
	for range 20 {
		body := &watched{Reader: bytes.NewReader(make([]byte, 8<<20))}
		err := c.put(t.Context(), "x", body, 8<<20)
		body.ended = true // the race detector sees a reader that goes on
		if err == nil {
			t.Error("no error")
		}
	}
}

type watched struct {
	*bytes.Reader
	ended bool
}

// ReadAt implements io.ReaderAt.
func (w *watched) ReadAt(p []byte, off int64) (int, error) {
	if w.ended {
		panic("read after the end")
	}
	return w.Reader.ReadAt(p, off)
}

// TestListing: parts that are smaller than asked for are put together, names are
// unescaped, and what a server sends that is no listing is an error.
func TestListing(t *testing.T) {
	var queries []string
	parts := []string{
		"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t 1</NextContinuationToken><Contents><Key>a%2Bb+c</Key><Size>5</Size></Contents></ListBucketResult>",
		"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>d%2F</Key><Size>6</Size></Contents></ListBucketResult>",
	}
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		fmt.Fprint(w, parts[len(queries)-1])
	})
	s := &Store{client: c, to: c.to, meters: new(meter.Store), health: newHealth(), calls: make(chan struct{}, 1), closing: context.Background(), o: Options{Timeout: patience}}
	got, err := s.list(t.Context(), "a")
	if err != nil || len(got) != 2 || got[0].name != "a+b c" || got[0].size != 5 || got[1].name != "d%2F" {
		t.Fatalf("%+v, %v", got, err)
	}
	want := []string{"delimiter=&encoding-type=url&list-type=2&max-keys=100&prefix=&start-after=a", "continuation-token=t%201&delimiter=&encoding-type=url&list-type=2&max-keys=100&prefix=&start-after=a"}
	if !slices.Equal(queries, want) {
		t.Errorf("%q, not %q", queries, want)
	}
	for _, bad := range []string{"", "<a>", "no XML", "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%z</Key></Contents></ListBucketResult>"} {
		queries, parts = nil, []string{bad, bad}
		if l, err := c.list(t.Context(), "", 1); err == nil {
			t.Errorf("%q: %+v", bad, l)
		}
	}
}
