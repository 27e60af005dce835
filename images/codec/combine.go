package codec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"millrace/images/picture"
)

// Combine returns an encoder that asks the levels in order: the first that
// writes the format does it; ErrUnsupported goes on to the next. So does a GIF that a
// level fails at: gif2webp refuses some that browsers show. Its Level is
// the names of the levels with plus signs between them; LevelOf tells which
// one writes a format.
func Combine(levels ...Encoder) Encoder {
	if len(levels) == 1 {
		return levels[0]
	}
	return combined(levels)
}

// LevelOf is the level that e asks first for a format: "embedded", "tools", or
// "" when none writes it.
func LevelOf(e Encoder, f Format) string {
	c, ok := e.(combined)
	if !ok {
		c = combined{e}
	}
	for _, level := range c {
		if _, writes := level.Formats()[f]; writes {
			return level.Level()
		}
	}
	return ""
}

type combined []Encoder

func (c combined) Level() string {
	names := make([]string, len(c))
	for i, level := range c {
		names[i] = level.Level()
	}
	return strings.Join(names, "+")
}

func (c combined) Formats() map[Format]string {
	all := map[Format]string{} // at most the formats of this package
	for _, level := range c {
		for f, who := range level.Formats() {
			if _, before := all[f]; !before {
				all[f] = who
			}
		}
	}
	return all
}

func (c combined) Encode(ctx context.Context, p *picture.Picture, o Params) ([]byte, error) {
	return c.first(func(level Encoder) ([]byte, error) { return level.Encode(ctx, p, o) })
}

func (c combined) Animate(ctx context.Context, file []byte, o Params, shape Shape) ([]byte, error) {
	var refused error // by the first level that failed
	file, err := c.first(func(level Encoder) ([]byte, error) {
		file, err := level.Animate(ctx, file, o, shape)
		if errors.Is(err, ErrFailed) && ctx.Err() == nil {
			refused = cmp.Or(refused, err)
			err = fmt.Errorf("%w: %w", ErrUnsupported, err) // here, so the next level is asked
		}
		return file, err
	})
	if err != nil && refused != nil {
		return nil, refused
	}
	return file, err
}

// first is the answer of the first level that does not call it unsupported.
func (c combined) first(ask func(Encoder) ([]byte, error)) ([]byte, error) {
	err := fmt.Errorf("no level of codecs: %w", ErrUnsupported)
	for _, level := range c {
		var file []byte
		if file, err = ask(level); !errors.Is(err, ErrUnsupported) {
			return file, err
		}
	}
	return nil, err
}
