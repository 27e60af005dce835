package load

import "errors"

func newSlow(p *plan) (driver, error) { return nil, errors.New("x") }
