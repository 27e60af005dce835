package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
)

// Images is what millrace's own count of conversions says, of all routes.
type Images struct {
	Level     string `json:"level"`
	Running   int    `json:"running"`
	Waiting   int    `json:"waiting"`
	Converted uint64 `json:"converted"`
	Failed    uint64 `json:"failed"`
	Shed      uint64 `json:"shed"`
}

// ReadImages asks the admin socket of a millrace that converts pictures.
func ReadImages(ctx context.Context, socket string) (sum Images, err error) {
	client := &http.Client{Timeout: scrapeTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/images/", nil)
	if err != nil {
		return sum, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return sum, fmt.Errorf("asking how many pictures are converted: %w", err)
	}
	defer resp.Body.Close()
	var routes map[string]Images
	if resp.StatusCode != http.StatusOK {
		return sum, fmt.Errorf("asking how many pictures are converted: it answers %s", resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&routes); err != nil {
		return sum, fmt.Errorf("reading how many pictures are converted: %w", err)
	}
	for _, r := range routes {
		sum.Level = r.Level
		sum.Running += r.Running
		sum.Waiting += r.Waiting
		sum.Converted += r.Converted
		sum.Failed += r.Failed
		sum.Shed += r.Shed
	}
	return sum, nil
}
