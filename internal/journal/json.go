package journal

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"time"
	"unicode/utf8"
)

// Text is a text as it was written: in JSON an object with its bytes in base64 where it is none, as somebody has edited it.
type Text string

type notText struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSONTo implements [json.MarshalerTo].
func (t Text) MarshalJSONTo(to *jsontext.Encoder) error {
	if !utf8.ValidString(string(t)) {
		return json.MarshalEncode(to, notText{[]byte(t)})
	}
	return to.WriteToken(jsontext.String(string(t)))
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (t *Text) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	if from.PeekKind() != '{' {
		return json.UnmarshalDecode(from, (*string)(t))
	}
	var odd notText
	err := json.UnmarshalDecode(from, &odd)
	*t = Text(odd.Base64)
	return err
}

// A row is JSON as its fields are, with its texts as [Text] has them, and its times in UTC.
var (
	rowOut = json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(func(to *jsontext.Encoder, s string) error {
			if utf8.ValidString(s) {
				return errors.ErrUnsupported
			}
			return Text(s).MarshalJSONTo(to)
		}),
		json.MarshalToFunc(func(to *jsontext.Encoder, t time.Time) error {
			if t.Location() == time.UTC {
				return errors.ErrUnsupported
			}
			return json.MarshalEncode(to, t.UTC())
		})))
	rowIn = json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(func(from *jsontext.Decoder, s *string) error {
			if from.PeekKind() != '{' {
				return errors.ErrUnsupported
			}
			return (*Text)(s).UnmarshalJSONFrom(from)
		})))
)

type plainRow Row

// MarshalJSONTo implements [json.MarshalerTo].
func (r Row) MarshalJSONTo(to *jsontext.Encoder) error {
	return json.MarshalEncode(to, plainRow(r), rowOut)
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom]. Times are as stores return them.
func (r *Row) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	err := json.UnmarshalDecode(from, (*plainRow)(r), rowIn)
	for _, t := range []*time.Time{&r.Began, &r.Due, &r.Used, &r.Ended} {
		if !t.IsZero() {
			*t = t.Local()
		}
	}
	return err
}
