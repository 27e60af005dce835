package wsload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// marker begins what we look for in a publication, whatever a server writes
// around it: marker, number, "@", time, "@".
const marker = "mrb@"

// receiving is a broadcast under way.
type receiving struct {
	first, last uint64 // publications of this order: first ≤ n < last
	lags        histogram
	got         Broadcasted
	latest      int64 // ns: when something was delivered last

	// What was parsed last: all connections get the same bytes.
	message []byte
	number  uint64
	due     int64
}

// published is what became of all publications of an order.
type published struct {
	accepted, refused uint64
	first             string
}

// Broadcast publishes, and waits until all connections have everything.
func (c *Client) Broadcast(o Broadcast) (Broadcasted, error) {
	if err := o.check(); err != nil {
		return Broadcasted{}, err
	}
	if c.open == 0 {
		return Broadcasted{}, errors.New("no connection is open that could receive")
	}
	// Numbers that no earlier order of this process has used.
	begun := c.now()
	r := &receiving{first: uint64(begun)}
	r.last = r.first + uint64(o.Count)
	subscribers := 0
	for i := range c.conns {
		if c.conns[i].fd >= 0 {
			c.conns[i].next = r.first
			subscribers++
		} else {
			c.conns[i].next = r.last
		}
	}
	c.receiving = r
	defer func() { c.receiving = nil }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(o.Count)*o.Every+2*patience)
	defer cancel()
	done := make(chan published, 1)
	go func() { // ends with ctx at the latest; waited for below
		done <- c.publish(ctx, o, r.first)
		c.Wake()
	}()
	var finished *published
	for over := int64(0); ; {
		if finished == nil {
			select {
			case p := <-done:
				finished, over = &p, c.now()
			default:
			}
		}
		if finished != nil {
			all := r.got.Delivered == finished.accepted*uint64(subscribers)
			if all || c.now()-max(over, r.latest) > int64(c.patience) {
				break
			}
		}
		if err := c.Turn(nap); err != nil {
			cancel()
			if finished == nil {
				<-done
			}
			return Broadcasted{}, err
		}
	}
	r.got.Published, r.got.Refused, r.got.First = finished.accepted, finished.refused, finished.first
	// What is missing at the end of a connection's numbers is lost as well.
	r.got.Lost = r.got.Published*uint64(subscribers) - min(r.got.Delivered, r.got.Published*uint64(subscribers))
	r.got.Took = time.Duration(max(0, r.latest-begun))
	r.got.Lag = r.lags.times()
	return r.got, nil
}

// publish posts all publications, each when it is due: if one takes long, the
// next ones are late, and say so by their time.
func (c *Client) publish(ctx context.Context, o Broadcast, first uint64) (p published) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	start := c.now() + int64(nap) // so that the thread waits already
	for i := range o.Count {
		due := start + int64(i)*int64(o.Every)
		if wait := time.Duration(due - c.now()); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
		if err := post(ctx, client, o.URL, data(first+uint64(i), due, o.Size)); err != nil {
			p.refused++
			if p.first == "" {
				p.first = err.Error()
			}
			continue
		}
		p.accepted++
	}
	return p
}

// data is a publication: a JSON string, which is text as well.
func data(number uint64, due int64, size int) string {
	text := fmt.Sprintf(`"%s%d@%d@`, marker, number, due)
	return text + strings.Repeat("x", max(0, size-len(text)-1)) + `"`
}

func post(ctx context.Context, client *http.Client, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, maxHead))
	if err != nil {
		return err
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("publishing: the server answered %s: %.80q", answer.Status, said)
	}
	return nil
}

// received is told of a message.
func (c *Client) received(k *conn, message []byte) {
	r := c.receiving
	if !bytes.Equal(message, r.message) {
		number, due, ok := parse(message)
		if !ok {
			return // not a publication
		}
		r.message, r.number, r.due = append(r.message[:0], message...), number, due
	}
	if r.number < r.first || r.number >= r.last {
		return // of an earlier order, whose loss was counted there
	}
	if r.number < k.next {
		r.got.Doubled++
		return
	}
	k.next = r.number + 1
	now := c.now()
	r.lags.add(now - r.due)
	r.got.Delivered++
	r.latest = now
}

// parse finds the number and the time of a publication.
func parse(message []byte) (number uint64, due int64, ok bool) {
	_, rest, ok := bytes.Cut(message, []byte(marker))
	if !ok {
		return 0, 0, false
	}
	first, rest, ok1 := bytes.Cut(rest, []byte("@"))
	second, _, ok2 := bytes.Cut(rest, []byte("@"))
	number, err1 := strconv.ParseUint(string(first), 10, 64)
	due, err2 := strconv.ParseInt(string(second), 10, 64)
	return number, due, ok1 && ok2 && err1 == nil && err2 == nil
}
