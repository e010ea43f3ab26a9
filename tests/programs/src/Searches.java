// Lucene over files that it maps: makes an index, or searches it and prints what it found.
//
// usage: Searches make DIRECTORY MIB
//        Searches DIRECTORY
//
// The seconds that the searches took, without the program's start, go to the file `seconds`.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;
import java.util.zip.CRC32;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.TopDocs;
import org.apache.lucene.store.MMapDirectory;
import org.apache.lucene.util.BytesRef;

public final class Searches {
    /** Words that there are; a document has this many of them, and bytes that are only stored. */
    private static final int WORDS = 50_000, LENGTH = 60, STORED = 3000;
    private static final int QUERIES = 300;

    private Searches() {}

    /** A word; low numbers are frequent. */
    private static String word(SplittableRandom source) {
        double place = source.nextDouble();
        return "w" + (int) (WORDS * place * place);
    }

    private static void make(Path place, int mib) throws Exception {
        SplittableRandom source = new SplittableRandom(1);
        IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer());
        config.setUseCompoundFile(false);
        try (MMapDirectory files = new MMapDirectory(place);
                IndexWriter writer = new IndexWriter(files, config)) {
            byte[] stored = new byte[STORED];
            for (long left = (long) mib << 20; left > 0; left -= STORED + 5 * LENGTH) {
                StringBuilder text = new StringBuilder();
                for (int at = 0; at < LENGTH; at++) {
                    text.append(word(source)).append(' ');
                }
                source.nextBytes(stored);
                Document document = new Document();
                document.add(new TextField("text", text.toString(), Field.Store.NO));
                document.add(new StoredField("stored", stored.clone()));
                writer.addDocument(document);
            }
            writer.forceMerge(1);
        }
    }

    private static void search(Path place) throws Exception {
        SplittableRandom source = new SplittableRandom(2);
        try (DirectoryReader reader = DirectoryReader.open(new MMapDirectory(place))) {
            IndexSearcher searcher = new IndexSearcher(reader);
            for (int query = 0; query < QUERIES; query++) {
                BooleanQuery.Builder words = new BooleanQuery.Builder();
                for (int at = 0; at < 3; at++) {
                    words.add(new TermQuery(new Term("text", word(source))), Occur.SHOULD);
                }
                TopDocs found = searcher.search(words.build(), 10);
                StringBuilder line = new StringBuilder().append(found.totalHits.value);
                for (ScoreDoc hit : found.scoreDocs) {
                    BytesRef stored = searcher.doc(hit.doc).getBinaryValue("stored");
                    CRC32 sum = new CRC32();
                    sum.update(stored.bytes, stored.offset, stored.length);
                    line.append(' ').append(hit.doc).append(':').append(sum.getValue());
                }
                System.out.println(line);
            }
        }
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("make")) {
            make(Path.of(words[1]), Integer.parseInt(words[2]));
            return;
        }
        long began = System.nanoTime();
        search(Path.of(words[0]));
        Files.writeString(Path.of("seconds"), Double.toString((System.nanoTime() - began) / 1e9));
    }
}
