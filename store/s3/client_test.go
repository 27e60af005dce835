package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSignature holds signatures against the examples in AWS's documentation:
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
func TestSignature(t *testing.T) {
	who := identity{key: "AKIAIOSFODNN7EXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", region: "us-east-1"}
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		method, path, query, sum string
		header                   map[string]string
		signed, want             string
	}{
		{
			"GET", "/test.txt", "", emptySum,
			map[string]string{"Range": "bytes=0-9"},
			"host;range;x-amz-content-sha256;x-amz-date",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
		},
		{
			"PUT", "/test$file.text", "", sumOf(strings.NewReader("Welcome to Amazon S3.")),
			map[string]string{"Date": "Fri, 24 May 2013 00:00:00 GMT", "X-Amz-Storage-Class": "REDUCED_REDUNDANCY"},
			"date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		},
		{
			"GET", "/", query(url.Values{"prefix": {"J"}, "max-keys": {"2"}}), emptySum,
			nil, "host;x-amz-content-sha256;x-amz-date",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
		},
	} {
		u := &url.URL{Scheme: "https", Host: "examplebucket.s3.amazonaws.com", Path: c.path, RawPath: escape(c.path, true), RawQuery: c.query}
		r := &http.Request{Method: c.method, URL: u, Host: u.Host, Header: http.Header{}}
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		sign(r, who, c.sum, at)
		want := "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=" + c.signed + ",Signature=" + c.want
		if got := r.Header.Get("Authorization"); got != want {
			t.Errorf("%s %s: %s, not %s", c.method, c.path, got, want)
		}
	}
}

func TestAddress(t *testing.T) {
	for _, c := range []struct{ store, region, name, want string }{
		{"s3://host:9000/bucket", "us-east-1", "", "https://host:9000/bucket/"},
		{"s3+http://host/bucket", "us-east-1", "a b/ü+&", "http://host/bucket/a%20b/%C3%BC%2B%26"},
		{"s3://s3.amazonaws.com/bucket", "us-east-1", "x", "https://bucket.s3.amazonaws.com/x"},
		{"s3://s3.amazonaws.com/bucket", "eu-west-3", "", "https://bucket.s3.eu-west-3.amazonaws.com/"},
		{"s3://s3.eu-west-1.amazonaws.com/my.bucket", "eu-west-1", "x", "https://s3.eu-west-1.amazonaws.com/my.bucket/x"},
		{"s3://oss-eu.aliyuncs.com/bucket", "oss-eu", "x", "https://bucket.oss-eu.aliyuncs.com/x"},
	} {
		to, err := parseURL(c.store)
		if err != nil {
			t.Fatal(err)
		}
		if got := to.address(c.region, c.name).String(); got != c.want {
			t.Errorf("%s %s: %s, not %s", c.store, c.name, got, c.want)
		}
	}
}

func TestValidBucket(t *testing.T) {
	for name, want := range map[string]bool{
		"abc": true, "Old_Bucket:1": true, "a.b-c.d": true, strings.Repeat("a", 63): true,
		"ab": false, "192.0.2.7": false, "a..b": false, "a.-b": false, "a-.b": false, "-abc": false, "abc.": false, "a/bc": false, "a%bc": false, strings.Repeat("a", 64): false,
	} {
		if got := validBucket(name); got != want {
			t.Errorf("%s: %t", name, got)
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
	return &client{http: tr, to: to}
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
	asked, fails := 0, 1
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if asked++; asked <= fails {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "<Error><Code>SlowDown</Code></Error>")
		} else if string(body) != "body" || r.Header.Get("X-Amz-Content-Sha256") != sumOf(strings.NewReader("body")) {
			t.Errorf("body %q, sum %s", body, r.Header.Get("X-Amz-Content-Sha256"))
		}
	})
	if err := c.put(t.Context(), "x", strings.NewReader("body"), 4); err != nil || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	asked, fails = 0, 9
	err := c.put(t.Context(), "x", strings.NewReader("body"), 4)
	if answer, ok := errors.AsType[*answerError](err); !ok || answer.code != "SlowDown" || answer.status != 503 || asked != attempts {
		t.Errorf("asked %d times: %v", asked, err)
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
	s := &Store{client: c, to: c.to, health: newHealth(), calls: make(chan struct{}, 1), closing: context.Background(), o: Options{Timeout: patience}}
	got, err := s.list(t.Context(), "a")
	if err != nil || len(got) != 2 || got[0].name != "a+b c" || got[0].size != 5 || got[1].name != "d%2F" {
		t.Fatalf("%+v, %v", got, err)
	}
	want := []string{"encoding-type=url&list-type=2&max-keys=100&start-after=a", "continuation-token=t%201&encoding-type=url&list-type=2&max-keys=100&start-after=a"}
	if !slices.Equal(queries, want) {
		t.Errorf("%q, not %q", queries, want)
	}
	for _, bad := range []string{"", "<a>", "no XML", "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%z</Key></Contents></ListBucketResult>"} {
		queries, parts = nil, []string{bad, bad}
		if l, err := c.list(t.Context(), "", "", "", 1); err == nil {
			t.Errorf("%q: %+v", bad, l)
		}
	}
}
