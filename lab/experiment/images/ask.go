package images

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

const (
	// maxBody is more than any image of a run has.
	maxBody = 64 << 20
	// statusHeader is where millrace says what it sent.
	statusHeader = "Millrace-Image"
)

// answered is what a client gets.
type answered struct {
	webp bool
	why  string // it is not
	body []byte
}

// newClient is a client with connections of its own.
func newClient() *http.Client {
	return &http.Client{Timeout: commandTimeout, Transport: &http.Transport{}}
}

// ask asks for an image as a browser that takes WebP.
func ask(ctx context.Context, client *http.Client, url string) (a answered, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, fmt.Errorf("asking for a picture: %w", err)
	}
	req.Header.Set("Accept", "image/webp")
	resp, err := client.Do(req)
	if err != nil {
		return a, fmt.Errorf("asking for a picture: %w", err)
	}
	defer resp.Body.Close()
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody)); err != nil {
		return a, fmt.Errorf("reading %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s answers %s: %.200s", url, resp.Status, a.body)
	}
	a.webp, a.why = resp.Header.Get("Content-Type") == "image/webp", resp.Header.Get(statusHeader)
	return a, nil
}

// conversions is millrace's own count.
type conversions struct {
	Running   int    `json:"running"`
	Waiting   int    `json:"waiting"`
	Converted uint64 `json:"converted"`
	Failed    uint64 `json:"failed"`
	Shed      uint64 `json:"shed"`
}

// count asks millrace's admin socket for the conversions of all routes.
func count(ctx context.Context, socket string) (sum conversions, err error) {
	client := &http.Client{Timeout: commandTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", strings.TrimPrefix(socket, "unix:"))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/images/", nil)
	if err != nil {
		return sum, fmt.Errorf("asking how many pictures are converted: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return sum, fmt.Errorf("asking how many pictures are converted: %w", err)
	}
	defer resp.Body.Close()
	var routes map[string]conversions
	if resp.StatusCode != http.StatusOK {
		return sum, fmt.Errorf("asking how many pictures are converted: it answers %s", resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&routes); err != nil {
		return sum, fmt.Errorf("reading how many pictures are converted: %w", err)
	}
	for _, r := range routes {
		sum.Running += r.Running
		sum.Waiting += r.Waiting
		sum.Converted += r.Converted
		sum.Failed += r.Failed
		sum.Shed += r.Shed
	}
	return sum, nil
}
