// Package client asks one server over one connection and looks closely at when
// its answers come.
package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Timeout is how long an answer may take: longer than any server of bench/run
// makes a client wait for another.
const Timeout = 30 * time.Second

const (
	// bodyLimit is more than any answer has.
	bodyLimit = 1 << 20
	// firstRead is the room for what comes first of a body of unknown length.
	firstRead = 4 << 10
)

// Client is one connection, which is kept.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
	host string
}

// Dial connects over network (tcp or unix). Close ends it.
func Dial(ctx context.Context, network, address string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &Client{conn, bufio.NewReader(conn), address}, nil
}

// Close closes the connection.
func (c *Client) Close() { c.conn.Close() }

// Answer is what came, and when.
type Answer struct {
	Status int
	Body   []byte
	First  time.Duration // from asking to the body's first byte
	Took   time.Duration // to its last
}

// Get asks for a target.
func (c *Client) Get(target string) (Answer, error) {
	return c.Do("GET " + target + " HTTP/1.1\r\nHost: " + c.host + "\r\n\r\n")
}

// Do sends a request as it stands, which is not HEAD, and reads its answer.
func (c *Client) Do(text string) (Answer, error) {
	if err := c.conn.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return Answer{}, err
	}
	began := time.Now()
	if _, err := io.WriteString(c.conn, text); err != nil {
		return Answer{}, err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode}
	body := make([]byte, firstRead)
	switch {
	case resp.ContentLength == 0:
		a.First = time.Since(began)
		a.Took = a.First
		return a, nil
	case resp.ContentLength > 0:
		body = make([]byte, min(resp.ContentLength, bodyLimit))
	}
	n, err := resp.Body.Read(body)
	a.First = time.Since(began)
	switch {
	case errors.Is(err, io.EOF):
		err = nil
		a.Body = body[:n]
	case err != nil:
	case resp.ContentLength >= 0:
		var more int
		more, err = io.ReadFull(resp.Body, body[n:])
		a.Body = body[:n+more]
	default:
		var rest []byte
		rest, err = io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
		a.Body = append(body[:n], rest...)
	}
	a.Took = time.Since(began)
	if err != nil {
		return a, fmt.Errorf("reading the body after %d bytes: %w", len(a.Body), err)
	}
	return a, nil
}
