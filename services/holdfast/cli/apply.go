package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api/apiclient"
)

// yamlType is what files are sent as; JSON is YAML too.
const yamlType = "application/yaml"

// applied is what an apply made, or found to be in force already.
type applied struct {
	definition any
	name       string
	revision   uint64
	same       bool
	note       string
}

// document is one definition of a file, as it is sent. Notes are for whoever wrote it.
type document struct {
	name  string
	body  []byte
	notes []string
}

// foreign reads a document of another system; ok is false for one of ours.
type foreign func(ctx context.Context, c *apiclient.ClientWithResponses, text []byte) (d document, ok bool, err error)

// applyCommand is `apply -f FILE` of a kind of definition. A file may have several; none
// is sent unless all can be read. Others' definitions are taken where read says how.
func applyCommand(
	o *Options, kind, short string, read foreign,
	send func(ctx context.Context, c *apiclient.ClientWithResponses, name string, body io.Reader) (applied, error),
) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			texts, err := readFile(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			c, err := o.Client()
			if err != nil {
				return err
			}
			documents, err := readDocuments(cmd.Context(), c, file, texts, read)
			if err != nil {
				return err
			}
			for i, d := range documents {
				for _, note := range d.notes {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s %s: %s\n", kind, d.name, note)
				}
				a, err := send(cmd.Context(), c, d.name, bytes.NewReader(d.body))
				if err != nil {
					if len(documents) > 1 {
						err = fmt.Errorf("%s %s, the %d. of %d, those before are applied: %w", kind, d.name, i+1, len(documents), err)
					}
					return err
				}
				if err := o.Show(cmd.OutOrStdout(), a.definition, func(w io.Writer) { a.say(w, kind) }); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file, or - for the input")
	return cmd
}

func (a applied) say(w io.Writer, kind string) {
	same := ""
	if a.same {
		same = " (unchanged)"
	}
	fmt.Fprintf(w, "%s %s is at revision %d%s\n", kind, a.name, a.revision, same)
	if a.note != "" {
		fmt.Fprintf(w, "%s %s: %s\n", kind, a.name, safe(a.note))
	}
}

// separator begins a document of YAML; what follows on its line belongs to it. No other
// line of YAML can begin so: all that is in a document's strings is indented.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t]|\r?$)`)

// readFile reads the documents of a file; those with nothing in them are left out.
func readFile(file string, stdin io.Reader) (texts [][]byte, err error) {
	var all []byte
	switch file {
	case "":
		return nil, usagef("say which file: -f FILE, or -f - for the input")
	case "-":
		all, err = io.ReadAll(stdin)
	default:
		all, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	for _, text := range separator.Split(string(all), -1) {
		var anything any
		if err := yaml.Unmarshal([]byte(text), &anything); err != nil {
			return nil, fmt.Errorf("%s is no YAML: %w", file, err)
		}
		if anything != nil {
			texts = append(texts, []byte(text))
		}
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("%s has nothing in it", file)
	}
	return texts, nil
}

// readDocuments reads what each of a file's documents defines, and names all that are
// wrong.
func readDocuments(ctx context.Context, c *apiclient.ClientWithResponses, file string, texts [][]byte, read foreign) ([]document, error) {
	documents := make([]document, 0, len(texts))
	wrong := make([]error, 0, len(texts))
	for _, text := range texts {
		d, err := readDocument(ctx, c, file, text, read)
		documents, wrong = append(documents, d), append(wrong, err)
	}
	return documents, errors.Join(wrong...)
}

func readDocument(ctx context.Context, c *apiclient.ClientWithResponses, file string, text []byte, read foreign) (document, error) {
	if read != nil {
		if d, ok, err := read(ctx, c, text); ok || err != nil {
			return d, err
		}
	}
	var named struct {
		Name string `json:"name"`
	}
	if err := yaml.Unmarshal(text, &named); err != nil {
		return document{}, fmt.Errorf("%s is no YAML: %w", file, err)
	}
	if named.Name == "" {
		return document{}, fmt.Errorf("%s has no name", file)
	}
	body, err := rooted(file, text)
	return document{name: named.Name, body: body}, err
}
