import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.Pointer;

/** Objects of the C library, freed by functions that JNA looks up in the C library's handle. */
public class Free {
    public interface LibC extends Library {
        Pointer strdup(String text);

        Pointer realloc(Pointer at, long size);

        void free(Pointer at);
    }

    static String text(int index) {
        return (index + " ").repeat(150);
    }

    public static void main(String[] words) {
        LibC libc = Native.load("libc.so.6", LibC.class);
        int count = Integer.parseInt(words[0]) << 10;
        Pointer[] all = new Pointer[count];
        for (int index = 0; index < count; index++) all[index] = libc.strdup(text(index));
        for (int index = 0; index < count; index += 3) all[index] = libc.realloc(all[index], 3000);
        for (int index = 0; index < count; index++) {
            if (!all[index].getString(0).equals(text(index))) System.exit(9);
            libc.free(all[index]);
        }
        System.out.println(count + " texts");
    }
}
