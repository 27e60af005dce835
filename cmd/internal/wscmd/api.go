package wscmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
)

// maxListed is more than any list of the server API has, in bytes.
const maxListed = 256 << 20

// apiFlags are those of the verbs that ask the server API.
type apiFlags struct {
	Key string `placeholder:"KEY" env:"MILLRACE_WS_KEY" help:"One of the server's keys. Not needed on the machine of a server that has none."`

	channelFlags `embed:""`
}

// call calls a method of the server API, and reads its result.
func (f *apiFlags) call(method string, params, result any) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	at, err := f.find(ctx)
	if err != nil {
		return err
	}
	defer at.close()
	key, _, _ := strings.Cut(f.Key, ",") // a server's variable may have several
	return at.call(ctx, method, key, params, result)
}

func (at *channelsAt) call(ctx context.Context, method, key string, params, result any) error {
	body, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.base+"api/"+method, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	resp, err := at.client.Do(req)
	if err != nil {
		return fmt.Errorf("asking: %w", unwrapped(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxListed))
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer: %w", err)
	case resp.StatusCode == http.StatusNotFound:
		return cli.Failure(fmt.Errorf("there is no server API at %s", at.base), "it is there with `centrifuge: true` below channels")
	case resp.StatusCode/100 != 2:
		return at.refused(resp, method+" was not done", errorText(text), "show one of the server's keys: --key KEY, or MILLRACE_WS_KEY")
	}
	answer := struct {
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
		Result any `json:"result"`
	}{Result: result}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if answer.Error != nil {
		return errors.New(answer.Error.Message)
	}
	return nil
}

// Disconnect is `millrace ws disconnect`.
type Disconnect struct {
	User   string `arg:"" help:"The user whose clients are disconnected, on all machines: sub of their token."`
	Client string `placeholder:"ID" help:"Only this client of the user: an id that presence has."`
	Again  bool   `help:"Let them come back. Else an SDK does not by itself."`

	apiFlags `embed:""`
}

// Run disconnects a user's clients.
func (c *Disconnect) Run(s cli.Streams) error {
	params := map[string]any{"user": c.User, "client": c.Client}
	if c.Again {
		const forceReconnect = 3011
		params["disconnect"] = map[string]any{"code": forceReconnect, "reason": "force reconnect"}
	}
	if err := c.call("disconnect", params, nil); err != nil {
		return err
	}
	_, err := fmt.Fprintln(s.Out, "told all servers to disconnect "+c.User)
	return err
}

// Channels is `millrace ws channels`.
type Channels struct {
	Pattern string `arg:"" optional:"" help:"Only those that fit: * stands for any characters."`

	apiFlags `embed:""`
}

// Run prints the channels that have subscribers on the server, and how many.
func (c *Channels) Run(s cli.Streams) error {
	var list struct {
		Channels map[string]struct {
			Clients int `json:"num_clients"`
		} `json:"channels"`
	}
	if err := c.call("channels", map[string]string{"pattern": c.Pattern}, &list); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(list.Channels)) {
		if _, err := fmt.Fprintf(s.Out, "%d\t%s\n", list.Channels[name].Clients, name); err != nil {
			return err
		}
	}
	return nil
}

// Presence is `millrace ws presence`.
type Presence struct {
	Channel string `arg:"" help:"The channel."`

	apiFlags `embed:""`
}

// Run prints who is in a channel, a line of JSON for each client.
func (c *Presence) Run(s cli.Streams) error {
	var list struct {
		Presence map[string]json.RawMessage `json:"presence"`
	}
	if err := c.call("presence", map[string]string{"channel": c.Channel}, &list); err != nil {
		return err
	}
	for _, client := range slices.Sorted(maps.Keys(list.Presence)) {
		if _, err := fmt.Fprintln(s.Out, oneLine(string(list.Presence[client]))); err != nil {
			return err
		}
	}
	return nil
}

// History is `millrace ws history`.
type History struct {
	Channel string `arg:"" help:"The channel."`
	Number  int    `short:"n" default:"20" placeholder:"N" help:"How many publications to print, the latest. Default 20; 0 is all that are kept."`

	apiFlags `embed:""`
}

// Run prints the latest publications of a channel, oldest first, a line of JSON for each.
func (c *History) Run(s cli.Streams) error {
	if c.Number < 0 {
		return cli.Usage(fmt.Sprintf("--number %d: how many publications to print, or 0 for all", c.Number), "")
	}
	limit := c.Number
	if limit == 0 {
		limit = -1
	}
	var page struct {
		Publications []struct {
			Offset uint64          `json:"offset"`
			Time   int64           `json:"time"`
			Data   json.RawMessage `json:"data"`
			Info   json.RawMessage `json:"info"`
		} `json:"publications"`
	}
	if err := c.call("history", map[string]any{"channel": c.Channel, "limit": limit, "reverse": true}, &page); err != nil {
		return err
	}
	for _, p := range slices.Backward(page.Publications) {
		line, err := json.Marshal(struct {
			Offset uint64          `json:"offset"`
			Time   string          `json:"time"`
			Data   json.RawMessage `json:"data"`
			From   json.RawMessage `json:"from,omitempty"`
		}{p.Offset, time.UnixMilli(p.Time).UTC().Format(time.RFC3339), p.Data, p.Info})
		if err != nil {
			return fmt.Errorf("a publication of the history: %w", err)
		}
		if _, err := fmt.Fprintln(s.Out, string(line)); err != nil {
			return err
		}
	}
	return nil
}
