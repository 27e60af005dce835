package cachecmd

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// The limits of lists. The Sitemap protocol (sitemaps.org) allows a file 50,000
// addresses and 50 MB uncompressed.
const (
	maxSitemap   = 50 << 20 // bytes after decompression
	maxAddresses = 500_000  // in all; more are a crawl, not a warm cache
	maxNested    = 16       // elements in each other; the protocol has 3, extensions some more
	maxListLine  = 64 << 10 // far more than any client may ask for
)

// addresses is what a list of pages names.
type addresses struct {
	pages []string
	maps  []string // other lists, named by a sitemap index
}

// errNoList is returned for what is neither a sitemap nor a list of addresses.
var errNoList = errors.New("this is neither a sitemap nor a list with one address per line")

// readAddresses reads a sitemap, a sitemap index, or one address per line with
// "#" before comments; each may be compressed with gzip.
func readAddresses(r io.Reader) (a addresses, err error) {
	buffered := bufio.NewReader(r)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) { // RFC 1952, 2.3.1
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return a, fmt.Errorf("decompressing: %w", err)
		}
		buffered = bufio.NewReader(unzipped)
	}
	limited := &io.LimitedReader{R: buffered, N: maxSitemap + 1}
	text := bufio.NewReader(limited)
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
		_, _ = text.Discard(3) // they are there
	}
	for {
		b, err := text.ReadByte()
		if errors.Is(err, io.EOF) {
			return a, nil // an empty list
		}
		if err != nil {
			return a, err
		}
		if b > ' ' {
			_ = text.UnreadByte() // it was just read
			if b == '<' {
				a, err = readSitemap(text)
			} else {
				a, err = readLines(text)
			}
			if limited.N <= 0 {
				return a, fmt.Errorf("the list is larger than %d MiB", maxSitemap>>20)
			}
			return a, err
		}
	}
}

func readLines(r io.Reader) (a addresses, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxListLine)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), " #")
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if !strings.HasPrefix(line, "/") && !isPage(line) {
			return a, fmt.Errorf("line %d is %.80q: %w", n, line, errNoList)
		}
		if a.pages = append(a.pages, line); len(a.pages) > maxAddresses {
			return a, fmt.Errorf("the list has more than %d addresses", maxAddresses)
		}
	}
	return a, lines.Err()
}

// isPage reports whether text is an address that can be asked for.
func isPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// readSitemap reads <urlset> and <sitemapindex>. Elements of extensions
// (images, videos) have a <loc> of their own, in another namespace.
func readSitemap(r io.Reader) (a addresses, err error) {
	d := xml.NewDecoder(r)
	var open []xml.Name
	var loc strings.Builder
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return a, fmt.Errorf("reading a sitemap: %w", err)
		}
		switch t := t.(type) {
		case xml.StartElement:
			if len(open) > maxNested || len(open) == 0 && t.Name.Local != "urlset" && t.Name.Local != "sitemapindex" {
				return a, errNoList
			}
			open = append(open, t.Name)
			loc.Reset()
		case xml.CharData:
			if inLoc(open) && loc.Len() < maxListLine {
				loc.Write(t)
			}
		case xml.EndElement:
			if inLoc(open) {
				if err := a.add(open[0].Local, strings.TrimSpace(loc.String())); err != nil {
					return a, err
				}
			}
			open = open[:len(open)-1]
		}
	}
}

// inLoc reports whether the innermost element is the address of an entry.
func inLoc(open []xml.Name) bool {
	return len(open) == 3 && open[2].Local == "loc" && open[2].Space == open[0].Space &&
		(open[1].Local == "url" || open[1].Local == "sitemap")
}

func (a *addresses) add(root, loc string) error {
	if !isPage(loc) {
		return fmt.Errorf("the sitemap names %.80q, which is not an address", loc)
	}
	if root == "sitemapindex" {
		a.maps = append(a.maps, loc)
	} else {
		a.pages = append(a.pages, loc)
	}
	if len(a.pages)+len(a.maps) > maxAddresses {
		return fmt.Errorf("the sitemap has more than %d addresses", maxAddresses)
	}
	return nil
}
