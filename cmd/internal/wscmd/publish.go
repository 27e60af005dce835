package wscmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
)

const (
	// maxPublished is as much as any server takes as one publication.
	maxPublished = 64 << 20
	// publishTimeout is for the whole of one publication.
	publishTimeout = 30 * time.Second
	// maxAnswer is more than the answer to a publication has, in bytes.
	maxAnswer = 64 << 10
)

// Publish is `millrace ws publish`.
type Publish struct {
	Channel string `arg:"" help:"The channel."`
	Text    string `arg:"" optional:"" help:"What to publish, as text; - is what comes on the standard input."`
	JSON    string `name:"json" placeholder:"JSON" help:"Publish this instead: any JSON value; - is the one that comes on the standard input."`
	Key     string `placeholder:"KEY" env:"MILLRACE_WS_KEY" help:"One of the server's keys. Not needed on the machine of a server that has none."`

	channelFlags `embed:""`
}

// Run publishes, and says where in the channel's order the publication is.
func (c *Publish) Run(s cli.Streams) error {
	data, contentType, err := c.data(os.Stdin)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	at, err := c.find(ctx)
	if err != nil {
		return err
	}
	defer at.close()
	key, _, _ := strings.Cut(c.Key, ",") // a server's variable may have several
	text, err := at.publish(ctx, c.Channel, data, contentType, key)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Out, text)
	return err
}

// data is what to publish, and its content type.
func (c *Publish) data(stdin io.Reader) ([]byte, string, error) {
	text, contentType := c.Text, "text/plain; charset=utf-8"
	switch {
	case text != "" && c.JSON != "":
		return nil, "", cli.Usage("a text and --json: only one of them can be what to publish", fmt.Sprintf("`millrace ws publish %s %q`, or --json alone", c.Channel, text))
	case text == "" && c.JSON == "":
		return nil, "", cli.Usage("what to publish is missing", fmt.Sprintf("for example `millrace ws publish %s 'it works'`; `millrace ws publish --help` has others", c.Channel))
	case c.JSON != "":
		text, contentType = c.JSON, "application/json"
	}
	data := []byte(text)
	if text == "-" {
		var err error
		if data, err = io.ReadAll(io.LimitReader(stdin, maxPublished+1)); err != nil {
			return nil, "", fmt.Errorf("reading what to publish: %w", err)
		}
		if len(data) > maxPublished {
			return nil, "", fmt.Errorf("what to publish is larger than %d MiB, which no server takes", maxPublished>>20)
		}
		if c.JSON == "" {
			data = bytes.TrimSuffix(data, []byte("\n")) // of echo and its like
		}
	}
	if c.JSON != "" && !json.Valid(data) {
		return nil, "", cli.Usage("--json: this is not JSON", "text is published without --json; a JSON text needs its quotes: --json '\"hello\"'")
	}
	return data, contentType, nil
}

// publish posts a publication, and returns what to say of it.
func (at *channelsAt) publish(ctx context.Context, channel string, data []byte, contentType, key string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.base+"publish?"+channelQuery(channel), bytes.NewReader(data))
	if err != nil {
		return "", fmt.Errorf("publishing: %w", err)
	}
	req.Header.Set("Content-Type", contentType)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := at.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("publishing: %w", unwrapped(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return "", at.refused(resp, "not published to "+channel, errorText(body),
			"show one of the server's keys: --key KEY, or MILLRACE_WS_KEY; it has those of `millrace ws --channels --key KEY`")
	}
	var answer struct {
		Offset uint64 `json:"offset"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Offset > 0 {
		return fmt.Sprintf("published to %s, as number %d", channel, answer.Offset), nil
	}
	return "published to " + channel, nil
}

// errorText is the message in an answer: JSON with an error, or a line of text.
func errorText(body []byte) string {
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Error != "" {
		return answer.Error
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if strings.HasPrefix(line, "<") { // somebody's page
		return ""
	}
	return line
}

// unwrapped is a client's error without the URL, which was typed or made up.
func unwrapped(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
